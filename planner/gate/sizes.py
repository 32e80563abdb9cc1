"""How much a stage asks at a time: large cases one by one, and in the long stages with fewer members in the batch."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from qrprof.planner.gate.holdout import takes, with_sizes
from qrprof.planner.gate.records import Task, TaskCase

LARGE: Final = 1 << 21  # numbers of a case that a long stage asks as it is
REQUEST: Final = 16  # calls at most in one
REQUEST_ELEMENTS: Final = 1 << 22


class Sized(Protocol):
    @property
    def case(self) -> TaskCase: ...


S = TypeVar("S", bound=Sized)


def elements(case: TaskCase) -> int:
    return sum(spec.elements for spec in case.tensors)


def fit(task: Task) -> list[TaskCase]:
    """The cases for a long stage: large ones with a smaller batch, or left out; at least the smallest one."""
    found = [smaller for case in task.development if elements(smaller := shrunk(task, case)) <= LARGE]
    return found or [min((shrunk(task, case) for case in task.development), key=elements)]


def shrunk(task: Task, case: TaskCase) -> TaskCase:
    """A large case with fewer members, where the task's domain has such."""
    lead, floor = case.tensors[0].shape[:1], max(task.domain.least, 2)
    if elements(case) <= LARGE or task.domain.shrink == "none" or not lead or lead[0] <= floor:
        return case
    count = max(floor, lead[0] * LARGE // elements(case))
    smaller = replace(with_sizes(case, {lead[0]: count}), name=f"{case.name} ({count} of {lead[0]})", samples=())
    return smaller if takes(task.op, smaller) else case


def requests(waiting: Sequence[S]) -> Iterator[list[S]]:
    """In order, a request each: not too many calls, and not too many numbers."""
    request: list[S] = []
    for one in waiting:
        held = sum(elements(other.case) for other in request)
        if request and (len(request) == REQUEST or held + elements(one.case) > REQUEST_ELEMENTS):
            yield request
            request = []
        request.append(one)
    if request:
        yield request
