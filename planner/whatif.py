"""What-ifs: the step of a run if parts of it took another time, by replaying its trace.

A scenario sets keys to specs: `linalg_qr=4x launch=0`. A change of an op scales its time on the host with that of all
it calls, and the device work that these launch; one of a kernel scales its durations alone. Changes of parts that
share time multiply.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from qrprof.planner.amdahl import combined_x
from qrprof.planner.estimate import Basis, Estimate
from qrprof.planner.measured import PerCall, measured_for
from qrprof.planner.replay.changes import Changes, both, unchanged
from qrprof.planner.replay.model import model_of, step_of
from qrprof.planner.rows import Counts, Row, ns_of, of_key
from qrprof.planner.targets import achievable, host_of, split
from qrprof.planner.whatif_keys import find_part
from qrprof.planner.whatif_parts import OP, PER_CALL, WAITS, Part, Subject
from qrprof.profiler import units
from qrprof.profiler.devices import Peaks
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.facts import find_facts
from qrprof.profiler.linalg import Signature
from qrprof.profiler.noise import Noise
from qrprof.profiler.partition import Partition, divide
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.trace import Trace

FACTOR, TIME, TABLE, ROOFLINE = "factor", "time", "table", "roofline"
SLOWEST: Final = 1e6  # times the present time
SPECS: Final = "give 4x, 0, a time such as 120us, table or roofline"
SWEPT: Final = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, math.inf)  # speedups of a sweep
PERCENT: Final = 0.01
FLAT: Final = 0.05  # of the time that goes: what the step gains of it where it is off the critical path


class Left(NamedTuple):
    """What an op would still take, ns of a mean step."""

    time: Estimate
    host_ns: float | None = None  # of its host, on a device; None: as much less as the time


Lookup = Callable[[Part], Left | None]  # None: not known


@dataclass(frozen=True)
class Spec:
    """What a part's time becomes."""

    text: str  # as it is written
    kind: str  # FACTOR, TIME, TABLE or ROOFLINE
    value: float = math.nan  # of a FACTOR: of the present time; of a TIME: ns


@dataclass(frozen=True)
class Change:
    part: Part
    spec: Spec
    factor: float  # of the part's present time
    basis: Basis  # of the factor
    on_host: float | None = None  # the factor there; None: the same


@dataclass(frozen=True)
class WhatIf:
    """A scenario and the step it leads to. Times are ns of a mean step."""

    changes: tuple[Change, ...]
    base_ns: float
    step_ns: float
    amdahl_x: float | None  # speedup by Amdahl's law; None: the partition is withheld
    replay_error: float  # of the unchanged replay against the recorded step, signed
    explained: float | None  # share of device starts that follow from an edge; None: no device
    next_step_error: float | None  # see `Model`

    @property
    def gain_ns(self) -> float:
        return self.base_ns - self.step_ns

    @property
    def speedup(self) -> float:
        return speedup(self.base_ns, self.step_ns)

    @property
    def scenario(self) -> str:
        return " ".join(f"{change.part.key}={change.spec.text}" for change in self.changes)

    def estimate(self, noise: Noise | None) -> Estimate:
        """The step, give or take what the replay was off by and the noise; the assumptions themselves are not judged.

        Its basis is the weakest of the changes'.
        """
        off = abs(self.replay_error) + abs(self.next_step_error or 0.0) + (noise.fraction if noise else 0.0)
        order = list(Basis)
        basis = max((change.basis for change in self.changes), key=order.index, default=Basis.MEASURED)
        return Estimate(self.step_ns * max(1 - off, 0.0), self.step_ns, self.step_ns * (1 + off), basis)


@dataclass(frozen=True)
class Point:
    x: float  # speedup of the part; inf: it is gone
    step_ns: float
    speedup: float  # of the step


@dataclass(frozen=True)
class Sweep:
    """The step by the speedup of a part, with the other changes of a scenario in place."""

    part: Part
    points: tuple[Point, ...]
    slope_ns: float  # that the step gains by the first per cent off the part's time
    flat_from: float | None  # the speedup from which the part is off the critical path; None: it never is


# --- the run


def subject_of(run: RunInfo, trace: Trace) -> Subject:
    """Build and check the model of a run. Raises QrprofError where it must not be believed, or the trace is empty."""
    facts = find_facts(trace, run)
    model = model_of(facts, run)
    if model.withheld:
        raise QrprofError(f"what-ifs of run {run.id} are withheld: {model.withheld}")
    return Subject(run, model, divide(facts, run))


def look_ups(subject: Subject, peaks: Peaks | None) -> Mapping[str, Lookup]:
    """What TABLE and ROOFLINE stand for in a run whose device has these peaks."""
    found = subject.partition
    return {TABLE: timed(found, measured_for(subject.run)), ROOFLINE: roofline(found, peaks)}


def roofline(found: Partition, peaks: Peaks | None) -> Lookup:
    """What `targets` expects a good kernel of an op to take, by the measured peaks of the run's device."""
    if peaks is not None and (peaks.kind == "cpu") == found.on_device:
        peaks = None

    def look(part: Part) -> Left | None:
        rows, counts = own(found, part)
        return Left(achievable(part.op, ns_of(rows), split(part.op, rows, counts, peaks), "", found.recorded_ns))

    return look


def own(found: Partition, part: Part) -> tuple[list[Row], Counts]:
    """The rows that an op itself owns, and the op's calls."""
    rows, counts = of_key(found, part.op)
    return [row for row in rows if part.shapes is None or row.shapes in part.shapes], counts


def timed(found: Partition, measured: Mapping[Signature, PerCall]) -> Lookup:
    """What the included kernels take for an op's calls, as they were timed; nothing where some were not."""

    def look(part: Part) -> Left | None:
        rows, counts = own(found, part)
        parts = split(part.op, rows, counts, None, measured)
        host_ns = host_of(parts)
        if host_ns is None:
            return None
        left = achievable(part.op, ns_of(rows), parts, "", found.recorded_ns)
        return Left(left, host_ns if found.on_device else None)

    return look


# --- scenarios


def parse_setting(text: str) -> tuple[str, Spec]:
    """KEY=SPEC. Raises QrprofError (exit code 2)."""
    key, equals, spec = text.rpartition("=")
    if not (equals and key.strip() and spec.strip()):
        raise QrprofError(f"{text!r} is not KEY=SPEC, such as linalg_qr=4x or launch=0", Exit.USAGE)
    return key.strip(), parse_spec(spec.strip())


def parse_spec(text: str) -> Spec:
    """`4x`, `0`, a time, `table` or `roofline`. Raises QrprofError (exit code 2)."""
    if text in (TABLE, ROOFLINE):
        return Spec(text, text)
    if text == "0":
        return Spec(text, FACTOR, 0.0)
    try:
        if text.endswith("x"):
            x = units.parse_ratio(text)
            return Spec(text, FACTOR, 1 / x if x else math.inf)
        return Spec(text, TIME, units.parse_time(text))
    except ValueError:
        raise QrprofError(f"{text!r} says no time: {SPECS}", Exit.USAGE) from None


def find_changes(
    subject: Subject, settings: Sequence[tuple[str, Spec]], look_up: Mapping[str, Lookup]
) -> tuple[Change, ...]:
    """The changes of a scenario; `look_up` answers TABLE and ROOFLINE.

    Raises QrprofError (exit code 2) where a key is unknown, ambiguous or set twice, or its spec cannot be had.
    """
    changes: dict[str, Change] = {}
    for key, spec in settings:
        part = find_part(subject, key)
        if part.key in changes:
            raise QrprofError(f"{part.label!r} is set twice: give one time for it", Exit.USAGE)
        changes[part.key] = find_change(subject, part, spec, look_up)
    return tuple(changes.values())


def find_change(subject: Subject, part: Part, spec: Spec, look_up: Mapping[str, Lookup]) -> Change:
    factor, basis, on_host = spec.value, Basis.ASSUMED, None
    if spec.kind == TIME:
        factor = spec.value / present_ns(part)
    elif spec.kind != FACTOR:
        factor, basis, on_host = looked_up(subject, part, spec, look_up[spec.kind])
    if not factor <= SLOWEST:
        raise QrprofError(f"{part.label}={spec.text} is over a million times as slow: {SPECS}", Exit.USAGE)
    return Change(part, spec, factor, Basis.CEILING if factor == 0 else basis, on_host)


def present_ns(part: Part) -> float:
    """ns of one call of an op, of one launch of a kernel, or in a mean step of anything else."""
    if part.key in WAITS:
        raise QrprofError(f"{part.label!r} waits for as long as the device takes: give 4x or 0", Exit.USAGE)
    count = part.calls if part.kind in PER_CALL else 1.0
    if not (count and part.ns):
        raise QrprofError(f"{part.label!r} takes no time in the steps: give 4x or 0", Exit.USAGE)
    return part.ns / count


def looked_up(subject: Subject, part: Part, spec: Spec, look: Lookup) -> tuple[float, Basis, float | None]:
    """The factor by an estimate of the time that remains, what it rests on, and that of the host."""
    if part.kind != OP:
        raise QrprofError(f"{spec.text!r} is for ops, and {part.label!r} is none; give 4x or a time", Exit.USAGE)
    found, (rows, _) = look(part), own(subject.partition, part)
    ns = ns_of(rows)
    if found is not None and found.time.mid is not None and ns > 0:
        host = None if found.host_ns is None or not part.host_ns else min(found.host_ns / part.host_ns, 1.0)
        # The estimate is of what the op itself takes; the change is of all that it calls as well.
        total = max(ns, float((part.shares * subject.partition.rows["ns"].to_numpy()).sum()))
        return (total - ns + found.time.mid) / total, found.time.basis, host
    if spec.kind == TABLE:
        why = f"no included kernel was timed for all calls of {part.label} on this device (`qrprof probe`)"
    elif not ns:
        why = f"no roofline for {part.label}, which has no row of its own in `qrprof rank`: name the ops that it calls"
    elif not any(row.shapes for row in rows):
        why = f"no roofline for {part.label}: the trace holds no shapes of it"
    else:
        why = (
            f"no roofline for {part.label}: its work, or this device's peaks (`qrprof doctor --measure`), are not known"
        )
    raise QrprofError(f"{why}; or give 4x or a time", Exit.USAGE)


# --- answers


def what_if(subject: Subject, changes: Sequence[Change]) -> WhatIf:
    """The step of a scenario."""
    model = subject.model
    return WhatIf(
        changes=tuple(changes),
        base_ns=model.base_ns,
        step_ns=step_of(model, combine(subject, changes)),
        amdahl_x=amdahl(subject.partition, changes),
        replay_error=model.error,
        explained=model.explained,
        next_step_error=model.next_step_error,
    )


def combine(subject: Subject, changes: Sequence[Change]) -> Changes:
    found = (
        change.part.change(change.factor)
        if change.on_host is None
        else change.part.change(change.factor, change.on_host)
        for change in changes
    )
    return reduce(both, found, unchanged(subject.model.graph))


def amdahl(found: Partition, changes: Sequence[Change]) -> float | None:
    """Speedup of the step if the partition's rows of the changed parts took their new times, and nothing else moved."""
    if found.withheld:
        return None
    old, new = found.rows["ns"], rows_ns(found, changes)
    moved = old != new
    total = found.recorded_ns if found.step_ns is None else found.step_ns
    return combined_x(total, old[moved].tolist(), new[moved].tolist())


def rows_ns(found: Partition, changes: Sequence[Change]) -> "pd.Series[float]":
    """What the partition's rows would take, each by its own share of the changed parts."""
    kept = np.ones(len(found.rows))
    for change in changes:
        kept *= 1 - change.part.shares * (1 - change.factor)
    return found.rows["ns"] * kept


def speedup(old: float, new: float) -> float:
    return old / new if new > 0 else math.inf


def sweep(subject: Subject, key: str, changes: Sequence[Change] = ()) -> Sweep:
    """The step by the speedup of what `key` names, with the `changes` in place.

    Raises QrprofError (exit code 2) where the key is unknown, ambiguous or one of the changes'.
    """
    part = find_part(subject, key)
    if part.key in [change.part.key for change in changes]:
        raise QrprofError(f"{part.label!r} is set and swept: give one of the two", Exit.USAGE)
    others = combine(subject, changes)

    def step(factor: float) -> float:
        return step_of(subject.model, both(others, part.change(factor)))

    base = subject.model.base_ns
    points = tuple(Point(x, ns, speedup(base, ns)) for x, ns in ((x, step(1 / x)) for x in SWEPT))
    slope = points[0].step_ns - step(1 - PERCENT)
    flat = flat_from(part, points)
    if flat == points[0].x and slope > FLAT * PERCENT * part.ns:
        flat = points[1].x
    return Sweep(part, points, slope, flat)


def flat_from(part: Part, points: Sequence[Point]) -> float | None:
    """From where on the step gains next to nothing of what the part still gains."""
    flat = None
    for last, point in zip(points[-2::-1], points[:0:-1], strict=True):
        if last.step_ns - point.step_ns > FLAT * part.ns * (1 / last.x - 1 / point.x):
            break
        flat = last.x
    return flat
