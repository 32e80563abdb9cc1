"""Tasks made: of an op that a recorded run called, or of a built-in set of QR cases."""

import difflib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, NamedTuple

import torch

from qrprof.planner.gate import qr_task
from qrprof.planner.gate.aten_task import MATRICES, judged, signature
from qrprof.planner.gate.draw import KINDS, definite, normal
from qrprof.planner.gate.inputs import Inputs, recorded_inputs
from qrprof.planner.gate.recorded import Unfit, fits, made
from qrprof.planner.gate.records import Domain, Shrink, Task, TaskCase, Tolerance
from qrprof.profiler import units
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.load import load_run
from qrprof.profiler.partition import Partition, partition
from qrprof.profiler.recording.spawn import sample_file
from qrprof.profiler.runinfo import RunInfo

MOST: Final = 8  # cases of a task: those with the most time
NEAREST: Final = 3
SCALES: Final = (1.0, 0.01, 100.0)


class Part(NamedTuple):
    """One kind of calls, with its share of the op's time in a mean step."""

    ns: float
    inputs: Inputs


def from_run(folder: Path, op: str, rank: int = 0) -> Task:
    """The task of making `op` ("aten::_softmax") faster as the run in `folder` called it.

    Its cases are the kinds of calls (shapes, strides, dtypes, plain values) with the most time, at most eight, each
    weighted with its share of theirs. Raises QrprofError, exit code 2: the op cannot be judged (the sentence names the
    one to take instead where there is one), or the run has no such calls.
    """
    overloads = judged(op)
    key = "aten::" + overloads[0].partition(".")[0]
    run, trace = load_run(folder, rank)
    found = partition(trace, run)
    parts = timed(found, key, recorded_inputs_of(folder, run, found, key))
    name, cases, notes = chosen(overloads, parts)
    kept = sorted(cases, key=lambda case: -case.weight)[:MOST]
    total, all_of_them = sum(case.weight for case in kept), sum(part.ns for part in parts)
    if len(cases) > MOST or total < 0.995 * all_of_them:
        notes.append(f"the {len(kept)} cases are {units.share(total / all_of_them)} of the op's time")
    weighted = [replace(case, weight=case.weight / total) for case in kept]
    matrices = name in MATRICES
    if matrices:
        weighted = with_samples(weighted, key, run)
    return Task(
        id=f"{name.strip('_')}-{run.id}",
        op=name,
        device="cuda" if found.on_device else "cpu",
        development=distinct(weighted),
        domain=qr_task.domain(batched(weighted)) if matrices else domain(weighted),
        checker="qr" if matrices else "relative",
        tolerance=Tolerance(),
        origin=run.id,
        arguments=signature(name),
        step_ns=total,
        notes=tuple(notes),
    )


def from_set(name: str, op: str, device: Literal["cpu", "cuda"]) -> Task:
    """A built-in QR task. Raises QrprofError (exit code 2) for an unknown set or op."""
    return qr_task.built_in(name, op.removeprefix("aten::"), device)


def recorded_inputs_of(folder: Path, run: RunInfo, found: Partition, key: str) -> Mapping[Inputs, int]:
    """The kinds of calls in the run's trace. Raises QrprofError (exit code 2) where it has none of this key."""
    keys = found.rows.loc[found.rows["kind"] == "op", "key"].unique()
    if key not in keys:
        near = difflib.get_close_matches(key, keys, n=NEAREST)
        nearest = f"; nearest: {', '.join(near)}" if near else ""
        raise QrprofError(f"run {run.id} has no {key} in its steps{nearest}; list all with `qrprof rank`", Exit.USAGE)
    return recorded_inputs(folder / run.trace, key)


def timed(found: Partition, key: str, inputs: Mapping[Inputs, int]) -> list[Part]:
    """The kinds of calls with their time: that of a row is divided among its kinds by how often each was called."""
    rows = found.rows[found.rows["key"] == key]
    times = rows.groupby(["shapes", "dtypes"], observed=True)["ns"].sum().to_dict()
    calls: dict[tuple[str, str], int] = defaultdict(int)
    for one, count in inputs.items():
        calls[one.shapes, one.dtypes] += count
    shared = {one: count / calls[one.shapes, one.dtypes] for one, count in inputs.items()}
    parts = [Part(times.get((one.shapes, one.dtypes), 0.0) * share, one) for one, share in shared.items()]
    return [part for part in parts if part.ns > 0]


def chosen(overloads: Sequence[str], parts: Sequence[Part]) -> tuple[str, list[TaskCase], list[str]]:
    """The overload with the most time, the cases of its calls with their ns as weights, and what was assumed.

    Raises QrprofError (exit code 2) where no call makes a case.
    """
    cases: dict[str, list[TaskCase]] = defaultdict(list)
    assumed: set[str] = set()
    reasons: list[str] = []
    for part in sorted(parts, key=lambda part: -part.ns):
        name = next((one for one in overloads if fits(one, part.inputs)), None)
        if name is None:
            reasons.append("has arguments that fit no overload that can be judged")
            continue
        try:
            found = made(name, part.inputs)
        except Unfit as reason:
            reasons.append(str(reason))
            continue
        cases[name].append(replace(found.case, weight=part.ns))
        assumed |= set(found.assumed)
    if not cases:
        why = reasons[0] if reasons else "has no calls with recorded inputs in the run's steps"
        raise QrprofError(f"no task for aten::{overloads[0]}: it {why}", Exit.USAGE)
    name = max(cases, key=lambda one: sum(case.weight for case in cases[one]))
    notes = [f"assumed: {one}; traces do not hold texts" for one in sorted(assumed)]
    return name, cases[name], [*notes, *(f"left out: a call that {why}" for why in sorted(set(reasons)))]


def distinct(cases: Sequence[TaskCase]) -> tuple[TaskCase, ...]:
    """The cases with names of their own: a second "64x64" becomes "64x64 #2"."""
    seen: dict[str, int] = defaultdict(int)
    found = []
    for case in cases:
        seen[case.name] += 1
        found.append(case if seen[case.name] == 1 else replace(case, name=f"{case.name} #{seen[case.name]}"))
    return tuple(found)


def domain(cases: Sequence[TaskCase]) -> Domain:
    """Of an op that is judged by its numbers. Inputs that must be of one structure, or indices, keep theirs."""
    own = any(case.structure for case in cases)
    others = () if own else tuple(name for name, kind in KINDS.items() if kind not in (normal, definite))
    return Domain(structures=others, scales=(1.0,) if own else SCALES)


def batched(cases: Sequence[TaskCase]) -> Shrink:
    """Of matrices: smaller batches are claimed, sizes of matrices are not."""
    return "leading" if all(len(case.tensors[0].shape) > 2 for case in cases) else "none"


def with_samples(cases: Sequence[TaskCase], key: str, run: RunInfo) -> list[TaskCase]:
    """QR cases with the matrices that the run kept for them: one for development, the others for the holdout alone.

    Where none was kept, matrices of normal numbers stand in.
    """
    path = sample_file(run.id, run.rank)
    kept = sample_names(path)
    found = []
    for case in cases:
        prefix = f"{key} {list(case.tensors[0].shape)} "
        names = [f"{path.name}#{name}" for name in kept if name.startswith(prefix)]
        found.append(replace(case, structure="dense", samples=tuple(names[:1]), held=tuple(names[1:])))
    return found


def sample_names(path: Path) -> list[str]:
    try:
        return sorted(torch.load(path, weights_only=True, mmap=True))
    except (OSError, RuntimeError):
        return []
