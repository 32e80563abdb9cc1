"""QR calls as a whole, and calls alike: sums of `panels.PanelStep`."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import mul

from qrprof.profiler.blocks import Problem, problem
from qrprof.profiler.panels import PanelStep
from qrprof.profiler.phases import PHASES

Phases = Mapping[str, float | None]


@dataclass(frozen=True)
class PanelCall:
    """One QR call; times are ns. `ns` is from its first kernel's start to the last one's end, or on the host."""

    call: int
    weight: float
    op: str
    shapes: str
    dtype: str
    library: str
    size: Problem | None  # None: shapes were not recorded
    start: int | None
    end: int | None
    phases: Phases | None
    gap: int | None
    parts: Mapping[str, int]  # kernels and gaps of each part
    flops: float | None
    lost: int
    note: str

    @property
    def ns(self) -> int | None:
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def gflops(self) -> float | None:
        """Achieved GFLOP/s; None where it is not known what was computed, or not all of it is in the file."""
        return self.flops / self.ns if self.flops and self.ns and not self.lost else None


@dataclass(frozen=True)
class PanelShape:
    """Calls of one op with the same inputs, done the same way; times are ns of a mean call."""

    op: str
    shapes: str
    dtype: str
    library: str
    size: Problem | None
    note: str
    calls: float  # per mean step
    ns: float | None
    phases: Phases | None
    gap: float | None
    parts: Mapping[str, float]
    gflops: float | None
    lost: int  # launches without device work, of all its calls
    members: tuple[int, ...]  # numbers of the calls

    @property
    def step_ns(self) -> float | None:
        """ns of a mean step."""
        return None if self.ns is None else self.calls * self.ns

    def shares(self) -> dict[str, float]:
        """Of kernels and gaps by phase, the gaps last; they sum to 1. Empty where there are none."""
        known = {phase: ns for phase, ns in (self.phases or {}).items() if ns is not None}
        times = known if self.gap is None else {**known, "gap": self.gap}
        total = sum(times.values())
        return {phase: ns / total for phase, ns in times.items()} if total else {}


@dataclass(frozen=True)
class PanelColumn:
    """One block column as the mean over calls alike and their matrices; times are ns."""

    part: str
    m: int | None
    n: int | None
    nb: int | None
    phases: Phases
    gap: float | None
    gflops: float | None

    @property
    def ns(self) -> float:
        """Of its kernels, and its gaps where they are known."""
        return sum(ns for ns in self.phases.values() if ns) + (self.gap or 0)


def by_call(steps: Iterable[PanelStep]) -> list[PanelCall]:
    """The calls that the block columns belong to, in their order."""
    calls: dict[int, list[PanelStep]] = defaultdict(list)
    for step in steps:
        calls[step.call].append(step)
    return [_call(own) for own in calls.values()]


def by_shape(calls: Iterable[PanelCall]) -> list[PanelShape]:
    """Calls alike, those with most time a step first."""
    alike: dict[tuple[str, ...], list[PanelCall]] = defaultdict(list)
    for call in calls:
        alike[call.op, call.shapes, call.dtype, call.library, call.note].append(call)
    return sorted(map(_shape, alike.values()), key=lambda shape: -(shape.step_ns or 0.0))


def block_columns(steps: Iterable[PanelStep], shape: PanelShape) -> list[PanelColumn]:
    """The block columns of a shape's calls in the order of work, and what stands around them first (part "")."""
    alike: dict[tuple[object, ...], list[PanelStep]] = defaultdict(list)
    for step in steps:
        if step.call in shape.members and step.phases is not None:
            alike[step.part, step.column, step.m, step.n, step.nb].append(step)
    return [_column(own) for own in alike.values()]


def _column(steps: Sequence[PanelStep]) -> PanelColumn:
    first, total = steps[0], sum(step.weight for step in steps)
    weights = [step.weight / total for step in steps]
    flops = _sum(weights, [step.flops for step in steps])
    ns = _sum(weights, [step.busy + (step.gap or 0) for step in steps])
    return PanelColumn(
        part=first.part,
        m=first.m,
        n=first.n,
        nb=first.nb,
        phases=_added(weights, [step.phases for step in steps]) or {},
        gap=_sum(weights, [step.gap for step in steps]),
        gflops=flops / ns if flops and ns else None,
    )


def _call(steps: Sequence[PanelStep]) -> PanelCall:
    first = steps[0]
    size = problem(first.op, first.shapes)
    parts: dict[str, int] = defaultdict(int)
    for step in steps:
        if step.part:
            parts[step.part] += step.busy + (step.gap or 0)
    notes = dict.fromkeys(step.note for step in steps if step.note)
    flops = first.flops  # of a call that is not split
    if size and parts:
        flops = size.batch * sum(size.in_part(first.op, part).flops(part) for part in parts)
    return PanelCall(
        call=first.call,
        weight=first.weight,
        op=first.op,
        shapes=first.shapes,
        dtype=first.dtype,
        library=first.library,
        size=size,
        start=min((step.start for step in steps if step.start is not None), default=None),
        end=max((step.end for step in steps if step.end is not None), default=None),
        phases=_added([1] * len(steps), [step.phases for step in steps]),
        gap=None if first.gap is None else sum(step.gap or 0 for step in steps),
        parts=dict(parts),
        flops=flops,
        lost=first.lost,
        note=", ".join(notes),
    )


def _shape(calls: Sequence[PanelCall]) -> PanelShape:
    first = calls[0]
    total = sum(call.weight for call in calls)
    weights = [call.weight / total for call in calls]
    ns = _sum(weights, [call.ns for call in calls])
    flops = None if first.lost else _sum(weights, [call.flops for call in calls])
    parts = dict.fromkeys(part for call in calls for part in call.parts)
    return PanelShape(
        op=first.op,
        shapes=first.shapes,
        dtype=first.dtype,
        library=first.library,
        size=first.size,
        note=first.note,
        calls=total,
        ns=ns,
        phases=_added(weights, [call.phases for call in calls]),
        gap=_sum(weights, [call.gap for call in calls]),
        parts={part: _sum(weights, [call.parts.get(part, 0) for call in calls]) or 0.0 for part in parts},
        gflops=flops / ns if flops and ns else None,
        lost=sum(call.lost for call in calls),
        members=tuple(call.call for call in calls),
    )


def _sum(weights: Sequence[float], values: Sequence[float | None]) -> float | None:
    """The weighted sum; None where a value is not known."""
    known = [value for value in values if value is not None]
    return sum(map(mul, weights, known)) if len(known) == len(values) else None


def _added(weights: Sequence[float], phases: Sequence[Phases | None]) -> dict[str, float | None] | None:
    """Weighted sums by phase; None for a phase that only fused kernels hold, and where there are no phases at all."""
    there = [(weight, own) for weight, own in zip(weights, phases, strict=True) if own is not None]
    names = {name for _, own in there for name in own}
    sums: dict[str, float | None] = {}
    for name in [*(name for name in PHASES if name in names), *sorted(names - set(PHASES))]:
        known = [weight * ns for weight, own in there if (ns := own.get(name)) is not None]
        sums[name] = sum(known) if known else None
    return sums or None
