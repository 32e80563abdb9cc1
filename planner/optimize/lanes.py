"""Lanes: ranges of sizes for each of which another candidate may be the best, and the one file that holds them all."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from qrprof.planner.gate.records import Task, TaskCase
from qrprof.planner.optimize.records import Candidate

Box = tuple[str, tuple[int, ...], tuple[int, ...]]  # dtype, and the smallest and largest sizes


@dataclass(frozen=True)
class Lane:
    name: str  # "32x32", "200x200..256x256"; "" where the task is one lane
    cases: tuple[TaskCase, ...]
    boxes: tuple[Box, ...]  # the inputs that it answers for


def split(task: Task) -> tuple[Lane, ...]:
    """The task's lanes, the smallest inputs first.

    Cases of one are of one dtype and as many sizes, and their elements lie between the same two powers of 4: sizes of
    square matrices differ by less than a factor of 2.
    """
    groups: dict[tuple[str, int, int], list[TaskCase]] = defaultdict(list)
    for case in task.development:
        dtype, sizes = key_of(task, case)
        power_of_4 = (math.prod(sizes).bit_length() - 1) // 2
        groups[dtype, len(sizes), power_of_4].append(case)
    ordered = [tuple(groups[key]) for key in sorted(groups)]
    if len(ordered) == 1:
        return (Lane("", ordered[0], boxes_of(task, ordered[0])),)
    lanes = [Lane(name_of(task, cases), cases, boxes_of(task, cases)) for cases in ordered]
    return tuple(distinct(lanes))


def key_of(task: Task, case: TaskCase) -> tuple[str, tuple[int, ...]]:
    """The dtype and the sizes that a lane is chosen by: of the first tensor, without a batch that may be smaller."""
    if not case.tensors:
        return "", ()
    spec = case.tensors[0]
    return spec.dtype, spec.shape[first_size(task) :] if len(spec.shape) > 1 else spec.shape


def place(task: Task) -> int:
    """The position of the first tensor among a candidate's arguments."""
    return max(0, task.development[0].layout.find("t"))


def first_size(task: Task) -> int:
    """Of those that choose, where there are several: 1 leaves out a batch."""
    return 0 if task.domain.shrink == "none" else 1


def boxes_of(task: Task, cases: Sequence[TaskCase]) -> tuple[Box, ...]:
    """One range around the sizes of all cases, or each size alone where a range would hold cases of other lanes."""
    keys = sorted({key_of(task, case) for case in cases})
    columns = list(zip(*(sizes for _, sizes in keys), strict=True))
    around = (keys[0][0], tuple(map(min, columns)), tuple(map(max, columns)))
    others = [key_of(task, case) for case in task.development if case not in cases]
    if any(holds(around, *other) for other in others):
        return tuple((dtype, sizes, sizes) for dtype, sizes in keys)
    return (around,)


def holds(box: Box, dtype: str, sizes: tuple[int, ...]) -> bool:
    same = box[0] == dtype and len(box[1]) == len(sizes)
    return same and all(low <= size <= high for low, size, high in zip(box[1], sizes, box[2], strict=True))


def name_of(task: Task, cases: Sequence[TaskCase]) -> str:
    sizes = sorted({key_of(task, case)[1] for case in cases}, key=lambda sizes: (math.prod(sizes), sizes))
    ends = ["x".join(map(str, one)) for one in (sizes[0], sizes[-1])]
    return "..".join(dict.fromkeys(ends)) or "scalar"


def distinct(lanes: Sequence[Lane]) -> list[Lane]:
    """With the dtype where names would be the same."""
    names = [lane.name for lane in lanes]
    return [
        replace(lane, name=f"{lane.name} {lane.boxes[0][0]}") if names.count(lane.name) > 1 else lane for lane in lanes
    ]


def part(task: Task, lane: str) -> Task:
    """The task of a lane's cases alone; of all for "" and for a name that is no lane's."""
    cases = next((one.cases for one in split(task) if one.name == lane), task.development)
    total = sum(case.weight for case in cases)
    return replace(task, development=tuple(replace(case, weight=case.weight / total) for case in cases))


def speed(candidate: Candidate, lane: Lane) -> float:
    """On the lane's cases, over the starting file; the speed on all where single cases are not known. 0: not timed."""
    if candidate.over is None:
        return 0.0
    known = [(case.weight, candidate.cases[case.name].mid) for case in lane.cases if case.name in candidate.cases]
    if not known:
        return candidate.over.mid
    return sum(weight for weight, _ in known) / sum(weight / mid for weight, mid in known)
