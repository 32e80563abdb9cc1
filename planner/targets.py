"""What could be made faster, and what the step would gain: the ranked list of targets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from qrprof.planner.advice import Facts, advise
from qrprof.planner.amdahl import ceiling_x
from qrprof.planner.counts import Work, work
from qrprof.planner.estimate import Basis, Estimate, ceiling
from qrprof.planner.fixes import FUSED_OP, Fix, find_fixes
from qrprof.planner.grouping import find_groupings
from qrprof.planner.measured import PerCall
from qrprof.planner.replay.levers import Levers, find_levers
from qrprof.planner.replay.model import Model
from qrprof.planner.roofline import Levels, remaining
from qrprof.planner.rows import Counts, Row, counts_by_key, most, ns_of, rows_by_key
from qrprof.profiler import units
from qrprof.profiler.devices import Peaks
from qrprof.profiler.linalg import Signature, by_signature, row_signature
from qrprof.profiler.noise import Noise
from qrprof.profiler.partition import Partition
from qrprof.profiler.runinfo import LinalgCall, RunInfo

WEAK_SHARE: Final = 0.2  # of a target's time without a better basis, above which the weaker one is all it has
WORKERS: Final = 4  # loader processes of a typical machine, for the middle estimate
TF32_KERNELS: Final = ("tf32", "tensorop")  # in names of kernels that take float to the tensor cores
REPLAYED: Final = 0.002  # of the step: what is smaller is in the noise, and a replay takes its time
HOST_COPIES: Final = ("HtoD", "DtoH")  # bound by the bus, whose rate is not measured


@dataclass(frozen=True)
class Target:
    """One thing to make faster. Times are ns of a mean step. None: withheld, the times are no shares of a step."""

    key: str
    kind: str  # "op", "gap" or "fix": a change of the program whose time lies in rows of other keys
    calls: float | None  # a step; None where it has no meaning
    ns: float
    share: float | None  # of a step; None for a fix too
    ceiling_x: float | None
    achievable_ns: Estimate | None  # that would remain
    gain_ns: Estimate | None  # that the step would save: by replay where there is one, else by its share
    by_share_ns: Estimate | None  # what Amdahl's law says of its share, whatever overlaps it
    overlap: bool  # other streams worked at the same time
    dont_bother: str | None  # the reason, with numbers
    advice: str
    why: str


@dataclass(frozen=True)
class Evidence:
    """What targets are judged by."""

    step_ns: float  # that shares and gains are of
    on_device: bool
    withheld: bool
    run: RunInfo
    peaks: Peaks | None
    noise: Noise | None
    levers: Levers | None  # None: no replay was asked for, or it is withheld
    only_ceilings: bool  # the replay is withheld
    measured: Mapping[Signature, PerCall] = field(default_factory=dict)  # of the included kernels
    fused: bool = False  # the optimizer's step calls a fused kernel


@dataclass(frozen=True)
class Part:
    """All calls of one op with the same inputs."""

    ns: float
    calls: float
    shapes: str
    todo: Work | None
    levels: Levels | None  # ns that would remain, not more than `ns`; None: unknown
    tf32: bool
    host_copy: bool
    host_ns: float | None  # of the included kernels, which `levels` are then of; None: these were not timed


def rank(
    partition: Partition,
    run: RunInfo,
    peaks: Peaks | None,
    noise: Noise | None,
    model: Model | None = None,
    measured: Mapping[Signature, PerCall] | None = None,
) -> list[Target]:
    """All keys of the partition as targets, the largest expected gain first; shares sum to 1.

    With a model of the run, gains and ceilings are those of its replay, but for rows under REPLAYED of the step, whose
    share bounds them. Where the model is withheld, nothing but bare ceilings is estimated.

    The expected gain is the middle estimate; of a bare ceiling it is half of the most, which is only a rule for the
    order. On ties the cheaper one comes first: a gap or a fix before an op. Where the partition is withheld, times are
    as recorded, nothing is estimated and the largest time comes first. Without a measured step (`step_ns` None) the
    recorded step takes its place. Peaks of another kind of device than the run's are ignored. `measured` holds ns of
    one call by the included kernels (`planner.measured`), which are worth more than what flops and bytes say.
    """
    if peaks is not None and (peaks.kind == "cpu") == partition.on_device:
        peaks = None
    step = partition.recorded_ns if partition.step_ns is None or partition.withheld else partition.step_ns
    levers = find_levers(model) if model is not None and model.withheld is None else None
    only_ceilings = model is not None and levers is None
    withheld = partition.withheld is not None
    fused = any(key.startswith(FUSED_OP) for key in partition.rows["key"].unique())
    times = measured or {}
    evidence = Evidence(step, partition.on_device, withheld, run, peaks, noise, levers, only_ceilings, times, fused)
    counts = counts_by_key(partition.calls)
    found = [judge(key, rows, counts.get(key, {}), evidence) for key, rows in rows_by_key(partition.rows).items()]
    if levers:
        fixes = [*find_fixes(levers.model, run, peaks), *find_groupings(levers.model, run, evidence.measured)]
        found += [from_fix(fix, evidence) for fix in fixes]
    return sorted(found, key=lambda target: (-expected_gain(target), target.kind == "op", target.key))


def expected_gain(target: Target) -> float:
    """ns of the step, by which targets are ordered: see `rank`."""
    gain = target.gain_ns
    if gain is None:
        return target.ns
    return gain.high / 2 if gain.mid is None else gain.mid


def judge(key: str, rows: Sequence[Row], counts: Counts, evidence: Evidence) -> Target:
    """The target made of all rows of one key."""
    ns, kind = ns_of(rows), rows[0].kind
    steps = evidence.run.steps_with(key)
    parts = split(key, rows, counts, evidence.peaks, evidence.measured, steps) if kind == "op" else []
    count = sum(counts.values()) if counts else None
    left = None if evidence.withheld else achievable(key, ns, parts, most(rows, "op"), evidence.step_ns)
    if left and evidence.only_ceilings:
        left = ceiling(ns)
    by_share = left.off(ns) if left else None
    gain, most_ns = replayed(key, ns, left, evidence, host_of(parts)) if left else (None, 0.0)
    facts = gather(key, ns, count, rows, parts, left, evidence)
    advice, why = advise(facts)
    return Target(
        key=key,
        kind=kind,
        calls=count,
        ns=ns,
        share=ns / evidence.step_ns if left else None,
        ceiling_x=ceiling_x(evidence.step_ns, min(most_ns, evidence.step_ns)) if left else None,
        achievable_ns=left,
        gain_ns=gain,
        by_share_ns=by_share,
        overlap=any(row.overlap for row in rows),
        dont_bother=below_noise(gain, evidence) if gain else None,
        advice=advice,
        why=why,
    )


def from_fix(fix: Fix, evidence: Evidence) -> Target:
    return Target(
        key=fix.key,
        kind="fix",
        calls=None,
        ns=fix.ns,
        share=None,
        ceiling_x=ceiling_x(evidence.step_ns, min(fix.ceiling_ns, evidence.step_ns)),
        achievable_ns=None,
        gain_ns=fix.gain_ns,
        by_share_ns=None,
        overlap=False,
        dont_bother=below_noise(fix.gain_ns, evidence),
        advice=fix.advice,
        why=fix.why,
    )


def replayed(key: str, ns: float, left: Estimate, evidence: Evidence, host_ns: float | None) -> tuple[Estimate, float]:
    """What the step saves when `left` remains of a target's `ns`, and `host_ns` of its host; and when nothing does."""
    remains = {left.low, left.high, 0.0} | ({left.mid} if left.mid is not None else set())
    saved = {one: gain_ns(key, ns, one, evidence, host_ns if one else None) for one in remains}
    low, high = saved[left.high], saved[left.low]
    mid = None if left.mid is None else min(max(saved[left.mid], low), high)
    return Estimate(min(low, high), mid, high, left.basis), saved[0.0]


def gain_ns(key: str, ns: float, remains: float, evidence: Evidence, host_ns: float | None) -> float:
    """What the step saves when a target of `ns` takes what `remains` of it: by replay, else by its share."""
    large = REPLAYED * evidence.step_ns <= ns != remains
    found = evidence.levers.gain(key, remains / ns, host_ns) if evidence.levers and large else None
    return ns - remains if found is None else found


def host_of(parts: Sequence[Part]) -> float | None:
    """ns of the host in a mean step, with the included kernels; None where not all calls were timed."""
    timed = [part.host_ns for part in parts if part.host_ns is not None]
    return sum(timed) if timed and len(timed) == len(parts) else None


def split(
    key: str,
    rows: Sequence[Row],
    counts: Counts,
    peaks: Peaks | None,
    measured: Mapping[Signature, PerCall] | None = None,
    steps: float = 1.0,
) -> list[Part]:
    """An op's rows by the inputs that they were called with; `steps` is the share of steps that call it."""
    by_inputs: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        by_inputs.setdefault((row.shapes, row.dtypes), []).append(row)
    found = []
    for inputs, group in sorted(by_inputs.items()):
        count, signature = counts.get(inputs, 0.0), row_signature(key, *inputs)
        call = (measured or {}).get(signature) if signature and count > 0 else None
        found.append(part(key, *inputs, group, count, peaks, call, steps))
    return found


def part(
    key: str,
    shapes: str,
    dtypes: str,
    rows: Sequence[Row],
    calls: float,
    peaks: Peaks | None,
    call: PerCall | None,
    steps: float,
) -> Part:
    """`call`: what one was measured to take with the included kernels."""
    ns, main = ns_of(rows), most(rows, "kernel")
    todo = work(key, shapes, dtypes)
    tf32 = dtypes.startswith("float") and any(mark in row.kernel for row in rows for mark in TF32_KERNELS)
    host_copy = any(mark in main for mark in HOST_COPIES)
    levels = None
    if call is not None:
        levels = Levels(*(calls * level for level in call.levels))
    elif todo is not None and peaks is not None and calls > 0 and not host_copy:
        levels = remaining(todo, calls, peaks, tf32, steps)
    capped = None if levels is None else Levels(*(min(level, ns) for level in levels))
    return Part(ns, calls, shapes, todo, capped, tf32, host_copy, None if call is None else calls * call.host)


def achievable(key: str, ns: float, parts: list[Part], blamed: str, step: float) -> Estimate:
    """What would remain of a target's `ns`."""
    if key == "gap:data":
        return with_workers(ns, step, "MultiProcessing" in blamed)
    unknown = sum(part.ns for part in parts if part.levels is None)
    if not parts or unknown >= ns:
        return ceiling(ns)
    levels = [part.levels or Levels(0.0, part.ns, part.ns) for part in parts]
    low, mid, high = (min(sum(column), ns) for column in zip(*levels, strict=True))
    if unknown > WEAK_SHARE * ns:
        return Estimate(low, None, high, Basis.CEILING)
    timed = sum(part.ns for part in parts if part.host_ns is not None) >= (1 - WEAK_SHARE) * ns
    return Estimate(low, mid, high, Basis.MEASURED if timed else Basis.ROOFLINE)


def with_workers(ns: float, step: float, has_workers: bool) -> Estimate:
    """The wait for data with worker processes that load while the rest of the step runs.

    A batch takes `ns` to load, or, where workers load already and do not keep up, a whole step. k workers (k times as
    many) leave max(0, batch / k - rest) visible: k = 1 at worst, 4 in the middle, nothing at best. A ceiling, because
    the work of loading is not known and free cores are assumed.
    """
    batch, rest = step if has_workers else ns, max(step - ns, 0.0)

    def left(workers: int) -> float:
        return min(ns, max(0.0, batch / workers - rest))

    return Estimate(0.0, left(WORKERS), left(1), Basis.CEILING)


def below_noise(gain: Estimate, evidence: Evidence) -> str | None:
    """Why a gain would not be seen; None where it would, or where the noise was not measured."""
    noise, step = evidence.noise, evidence.step_ns
    if noise is None or gain.high >= 2 * noise.fraction * step:
        return None
    return (
        f"at most {units.time(gain.high)} of a step of {units.time(step)}, under twice its {noise.name} noise of"
        f" {units.time(noise.fraction * step)}"
    )


def gather(
    key: str,
    ns: float,
    calls: float | None,
    rows: Sequence[Row],
    parts: list[Part],
    left: Estimate | None,
    evidence: Evidence,
) -> Facts:
    """What the advice is chosen by."""
    main = max(parts, key=lambda part: part.ns, default=None)
    todo = main.todo if main else None
    blamed = most(rows, "op")
    return Facts(
        key=key,
        ns=ns,
        step_ns=evidence.step_ns if left else None,
        calls=calls,
        on_device=evidence.on_device,
        run=evidence.run,
        peaks=evidence.peaks,
        work_kind=todo.kind if todo else "",
        shapes=main.shapes if main else "",
        dtype=todo.dtype if todo else "",
        same_calls=main.calls if main else 0.0,
        flops=sum(part.calls * part.todo.flops for part in parts if part.todo),
        tf32=main is not None and main.tf32,
        host_copy=main is not None and main.host_copy,
        phase=most(rows, "phase"),
        blamed=blamed,
        blamed_ns=ns_of([row for row in rows if row.op == blamed]),
        where=most(rows, "where"),
        linalg=recorded_calls(key, rows, evidence.run),
        achievable=left,
        fused=evidence.fused,
    )


def recorded_calls(key: str, rows: Sequence[Row], run: RunInfo) -> tuple[LinalgCall, ...]:
    """The linalg calls of the unprofiled steps that these rows are of."""
    recorded = by_signature(run.linalg)
    found = {row_signature(key, row.shapes, row.dtypes) for row in rows}
    return tuple(call for signature in found if signature for call in recorded.get(signature, []))
