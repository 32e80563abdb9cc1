"""Two runs of a program, row by row: which part of the step takes how much more or less time.

Rows are matched by op, shapes, dtypes and phase; work whose op is not known (replays of graphs, traces without
ops) by its kernel. What is left of an op in both runs is matched by the order of the first calls in a step: the same
calls, whose sizes were changed. Where both runs are calibrated, their rows sum to their unprofiled steps and the
differences to the difference of these; else recorded times are compared, which sum to the recorded steps. A difference
below the noise of the two steps is no change. Runs that have too little in common are not compared; what is matched by
order is not in common.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from qrprof.profiler import units
from qrprof.profiler.facts import Facts, find_facts
from qrprof.profiler.noise import Noise, frequency, of_run, within_run
from qrprof.profiler.owners import describe
from qrprof.profiler.partition import UNATTRIBUTED, Partition, divide
from qrprof.profiler.runinfo import Block, RunInfo
from qrprof.profiler.steps import window_at
from qrprof.profiler.trace import Trace
from qrprof.profiler.work import LAUNCH_NAMES

COMPARABLE: Final = 0.5  # of both runs' time in ops, below which the runs are different programs
SAME_CALLS: Final = 0.01  # relative: calls of a mean step are sums of weights
WHOLE: Final = "whole trace"  # the step of an imported trace that has none
STILL: Final = "no change"
IDENTITY: Final = ["key", "kind", "shapes", "dtypes", "phase", "kernel"]
CALLED: Final = ["key", "shapes", "dtypes", "phase"]
SLOT: Final = ["key", "kind", "dtypes", "phase", "kernel", "slot"]  # see `slotted`
ALIKE: Final = ["key", "shapes", "kernel"]
BY_SHAPE: Final = "shape"
BY_ORDER: Final = "order"
ARROW: Final = " -> "  # between the shapes of A and of B
COLUMNS: Final = [*IDENTITY, "matched", "calls_a", "calls_b", "a_ns", "b_ns", "delta_ns", "speedup", "change"]


@dataclass(frozen=True)
class Side:
    """One of the runs; its noise is the best that is known of it."""

    run: RunInfo
    parts: Partition
    first: pd.DataFrame  # see `first_calls`
    noise: Noise | None


@dataclass(frozen=True)
class Diff:
    """Times are ns of a mean step.

    `rows`, the largest difference first: key, kind ("op", "gap"), shapes, dtypes, phase, kernel ("" where the op is
    known), matched ("shape": the runs have the same row; "order": two rows whose shapes differ, and shapes is
    "A's -> B's"; "": only one run has it), calls_a, calls_b (NaN where they have no meaning), a_ns, b_ns (0 where the
    run has no such row), delta_ns (b - a), speedup (a / b; NaN where one is 0) and change: "slower", "faster", "new",
    "gone", "no change" (below the floor), or "" where no floor is known. There are none where the runs are not
    compared.
    """

    rows: pd.DataFrame
    a_ns: float  # what the rows of A sum to: its step
    b_ns: float
    calibrated: bool  # rows are scaled to the unprofiled steps; else they are as recorded, in both runs
    unprofiled_ns: tuple[float, float] | None  # the steps of A and B; None where one was never measured
    floor_ns: float | None  # noise of the difference of the steps
    noise: str | None  # its name: "within-run", "run-to-run"
    comparability: float | None  # see `comparability`
    withheld: str | None  # why the rows are not compared

    @property
    def steps_ns(self) -> tuple[float, float]:
        """The steps of A and B: unprofiled where both were measured, else as recorded."""
        return self.unprofiled_ns or (self.a_ns, self.b_ns)


def side(trace: Trace, run: RunInfo) -> Side:
    """Take from a run what `diff` needs. Raises QrprofError where the trace is empty."""
    facts = find_facts(trace, run)
    return side_of(facts, run, divide(facts, run))


def side_of(facts: Facts, run: RunInfo, parts: Partition) -> Side:
    """The same of a run whose time is divided."""
    noise = of_run(run) if run.unprofiled_ns() else within_run([recorded(facts, run)], frequency(run))
    return Side(run, parts, first_calls(facts), noise)


def recorded(facts: Facts, run: RunInfo) -> Block:
    """The recorded steps as a block, for runs that have no other."""
    windows, kinds = facts.steps.device, {step.index: step.kind for step in run.recorded}
    durations = (windows.end - windows.start).tolist()
    named = [kinds.get(number, "A") for number in facts.steps.numbers.tolist()]
    return Block(clock="trace", first_step=0, durations_ns=durations, kinds=named)


def first_calls(facts: Facts) -> pd.DataFrame:
    """CALLED and at: how long after a step's start the op is called first, in ns; of ops called in the steps."""
    host, windows = facts.host, facts.steps.host
    window = window_at(windows, host.start)
    rows = np.flatnonzero((facts.owners.row == np.arange(len(window))) & (window >= 0))
    calls = describe(host, facts.owners, rows).assign(at=host.start[rows] - windows.start[window[rows]])
    return calls.groupby(CALLED, as_index=False)[["at"]].min()


def diff(a: Side, b: Side) -> Diff:
    """What a step of run B takes more or less than one of run A."""
    measured = unprofiled(a, b)
    calibrated = measured is not None and not (a.parts.withheld or b.parts.withheld)
    column = "ns" if calibrated else "recorded_ns"
    one, other = summed(a, column), summed(b, column)
    rows = matched(one, other)
    a_ns, b_ns = float(rows["a_ns"].sum()), float(rows["b_ns"].sum())
    floor, noise = floor_of(a.noise, b.noise, *(measured or (a_ns, b_ns)))
    share = comparability(one, other)
    withheld = refusal(a, b, share)
    delta, only = rows["delta_ns"], rows["only"]
    words = changes(delta, only == "right_only", only == "left_only", floor)
    rows = rows.assign(change=words, size=delta.abs(), time=rows["a_ns"] + rows["b_ns"])
    rows = rows.sort_values(["size", "time", *SLOT], ascending=[False, False] + [True] * len(SLOT))
    return Diff(
        rows=rows[: 0 if withheld else len(rows)][COLUMNS].reset_index(drop=True),
        a_ns=a_ns,
        b_ns=b_ns,
        calibrated=calibrated,
        unprofiled_ns=measured,
        floor_ns=floor,
        noise=noise,
        comparability=share,
        withheld=withheld,
    )


def regressed(found: Diff, limit: float) -> bool:
    """Whether B's step is slower than A's by more than the fraction `limit` of it and the noise floor together."""
    a_ns, b_ns = found.steps_ns
    return b_ns - a_ns - (found.floor_ns or 0.0) > limit * a_ns


# --- what is compared


def unprofiled(a: Side, b: Side) -> tuple[float, float] | None:
    a_ns, b_ns = a.parts.step_ns, b.parts.step_ns
    return None if a_ns is None or b_ns is None else (a_ns, b_ns)


def floor_of(a: Noise | None, b: Noise | None, a_ns: float, b_ns: float) -> tuple[float | None, str | None]:
    """Noise of the difference of two steps, which are independent of each other, and its name."""
    if a is None or b is None:
        return None, None
    names = a.name if a.name == b.name else f"{a.name} of A, {b.name} of B"
    return math.hypot(a.fraction * a_ns, b.fraction * b_ns), names


def summed(one: Side, column: str) -> pd.DataFrame:
    """IDENTITY, ns, at (see `first_calls`) and calls: of the op, or launches of the kernel where it is not known."""
    rows = one.parts.rows
    nameless = rows["key"].map(op_unknown).astype(bool)
    rows = rows.assign(kernel=rows["kernel"].where(nameless, ""))
    found = rows.groupby(IDENTITY, as_index=False).agg(ns=(column, "sum"), launches=("launches", "sum"))
    calls = one.parts.calls.groupby(CALLED, as_index=False)["calls"].sum()
    found = found.merge(calls, on=CALLED, how="left").merge(one.first, on=CALLED, how="left")
    return found.assign(calls=found["calls"].where(found["kernel"] == "", found["launches"]))


def op_unknown(key: str) -> bool:
    """Whether a row's key is no op but the call that launched its work, or not even that."""
    return key == UNATTRIBUTED or ("::" not in key and LAUNCH_NAMES.search(key) is not None)


def slotted(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """`one` with a slot, by which its rows meet those of `other`: the shapes where both have the row, else its place.

    Places are numbered by the first call among the op's rows that `other` has not. A row whose shapes were not
    recorded stands for calls of any shape, so it has no place.
    """
    shared = pd.MultiIndex.from_frame(one[IDENTITY]).isin(pd.MultiIndex.from_frame(other[IDENTITY]))
    alone = one[~shared & (one["shapes"] != "")].sort_values(["at", "shapes"])
    place = alone.groupby(SLOT[:-1]).cumcount().astype(str)
    return one.assign(slot=place.reindex(one.index).fillna(one["shapes"]))


def matched(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """The rows of both; one that only one of them has takes no time in the other."""
    rows = slotted(a, b).merge(slotted(b, a), on=SLOT, how="outer", suffixes=("_a", "_b"), indicator="only")
    here = {"a": rows["only"] != "right_only", "b": rows["only"] != "left_only"}
    for one, there in here.items():
        rows[f"{one}_ns"] = rows[f"ns_{one}"].fillna(0.0)
        rows[f"calls_{one}"] = rows[f"calls_{one}"].where(there, 0.0)
    both = here["a"] & here["b"]
    first, second = rows["shapes_a"].fillna(rows["shapes_b"]), rows["shapes_b"].fillna(rows["shapes_a"])
    ratio = rows["a_ns"] / rows["b_ns"].where(rows["b_ns"] > 0)
    return rows.assign(
        shapes=first.where(first == second, first + ARROW + second),
        matched=np.select([both & (first == second), both], [BY_SHAPE, BY_ORDER], ""),
        delta_ns=rows["b_ns"] - rows["a_ns"],
        speedup=ratio.where(rows["a_ns"] > 0),
    )


# --- what is said about it


def comparability(a: pd.DataFrame, b: pd.DataFrame) -> float | None:
    """Share of both runs' time in ops that lies in ops and shapes which both call equally often; None without ops."""
    sums = (one[one["kind"] == "op"].groupby(ALIKE)[["ns", "calls"]].sum(min_count=1) for one in (a, b))
    first, second = (one.reset_index() for one in sums)
    ops = first.merge(second, on=ALIKE, how="outer", suffixes=("_a", "_b"))
    calls_a, calls_b = (ops[f"calls_{one}"].where(ops[f"ns_{one}"].notna(), 0.0) for one in "ab")
    same = np.isclose(calls_a, calls_b, rtol=SAME_CALLS, equal_nan=True)
    ns = ops[["ns_a", "ns_b"]].sum(axis=1)
    total = float(ns.sum())
    return float(ns[same].sum()) / total if total else None


def refusal(a: Side, b: Side, share: float | None) -> str | None:
    """Why the runs are not compared, in one sentence; None where they are."""
    if kind(a) != kind(b):
        return f"A ran on {kind(a)}, B on {kind(b)}: their rows are not the same work"
    for name, one in (("A", a), ("B", b)):
        if reason := one.parts.coverage.abstains:
            return f"the trace of {name} does not say where its step goes: {reason}"
    if share is None:
        return "neither run has time in ops"
    if share < COMPARABLE:
        return (
            f"only {units.share(share)} of their time in ops is in ops and shapes that both call equally often, less "
            f"than {units.share(COMPARABLE)}: {unlike(a, b)}"
        )
    return None


def unlike(a: Side, b: Side) -> str:
    """What the reason may be."""
    sides = (("A", a), ("B", b))
    replaying = [name for name, one in sides if one.parts.rows["key"].str.contains("GraphLaunch").any()]
    cut = [name for name, one in sides if one.run.step_source.endswith(WHOLE)]
    if len(replaying) == 1:
        return f"{replaying[0]} replays graphs, whose kernels have no ops"
    if cut:
        which = f"{cut[0]} has no steps: its" if len(cut) == 1 else "A and B have no steps: their"
        return f"{which} calls depend on where the recording was cut"
    return "they do not do the same work"


def kind(one: Side) -> str:
    """The kind of device that the run's work is on."""
    if not one.parts.on_device:
        return "cpu"
    return next((device.kind for device in one.run.devices if device.kind != "cpu"), "cuda")


def changes(
    delta: "pd.Series[float]", new: "pd.Series[bool]", gone: "pd.Series[bool]", floor: float | None
) -> npt.NDArray[np.object_]:
    """In a word, by what each row takes more in B, and whether B or A alone has it; "" where no floor is known."""
    if floor is None:
        return np.full(len(delta), "", dtype=object)
    still = (delta.abs() <= floor) | (delta == 0)
    return np.select([still, new, gone, delta > 0], [STILL, "new", "gone", "slower"], "faster").astype(object)
