"""The ranks of a run side by side: how each spends its step, who waits for whom, and who holds up the others."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from qrprof.profiler import units
from qrprof.profiler.collectives import Collectives, communicates, communication, match
from qrprof.profiler.coverage import Coverage, cover
from qrprof.profiler.events import HOST, OP
from qrprof.profiler.facts import Facts, find_facts
from qrprof.profiler.nesting import Ints, Mask
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.steps import Windows, weight_at
from qrprof.profiler.trace import Trace

STANDS_OUT: Final = 0.5  # of all waiting, that a straggler causes
APART: Final = 2.0  # times what the next one causes
LEAST: Final = 0.01  # of the ranks' steps, below which waiting is not worth a name
LUCK: Final = 0.1  # the largest probability of chance alone


@dataclass(frozen=True)
class RankTimes:
    """How one rank spends its mean recorded step on one device, ns: step = compute + exposed + idle.

    Without a device (`device` is HOST) ops stand for compute, and idle is what is neither op nor communication.
    What is not known is None.
    """

    rank: int
    device: int
    step_ns: float
    unprofiled_ns: float | None  # the mean step without the profiler
    busy_ns: float | None  # any work on the device
    compute_ns: float | None  # any work but communication: kernels, copies, memsets
    communication_ns: float | None
    exposed_ns: float | None  # communication while nothing is computed
    idle_ns: float | None


@dataclass(frozen=True)
class Seen:
    """What is kept of a rank's trace."""

    rank: int
    times: tuple[RankTimes, ...]  # one a device
    communication: pd.DataFrame
    coverage: Coverage


@dataclass(frozen=True)
class Arrivals:
    """A member's part in the waiting, ns of a mean step."""

    rank: int
    device: int
    collectives: int  # it takes part in
    came_last: int  # of them, that it came last to
    led_steps: int  # steps in which it causes the most
    wait_ns: float  # that it waits for others
    caused_ns: float  # that others wait for it
    early_ns: float  # by how much collectives could begin earlier if it came with the next to last
    luck: float  # probability that some member is last, or leads, as often as this one by chance alone


@dataclass(frozen=True)
class Ranks:
    times: tuple[RankTimes, ...]
    collectives: Collectives
    arrivals: tuple[Arrivals, ...]  # those who cause most waiting first
    steps: int  # recorded steps that have collectives
    wait_ns: float | None  # of all members together; None where no collective was matched
    coverage: Mapping[int, Coverage]  # by rank

    @property
    def straggler(self) -> Arrivals | None:
        """The member that holds up the others, where one stands out."""
        return None if doubts(self) else self.arrivals[0]

    @property
    def why(self) -> str:
        """How sure that is, or why there is none, in one sentence."""
        return doubts(self) or verdict(self)

    def label(self, one: Arrivals | RankTimes) -> str:
        """`rank 3`, and the device where the rank has several."""
        several = sum(row.rank == one.rank for row in self.times) > 1
        return f"rank {one.rank}, device {one.device}" if several else f"rank {one.rank}"


def ranks(traces: Mapping[int, Trace], runs: Mapping[int, RunInfo] | None = None) -> Ranks:
    """Compare the traces of several ranks, by rank. A rank of several devices has a row for each.

    `runs` know the weights of the recorded steps. Raises QrprofError where a trace is empty.
    """
    known = runs or {}
    return compare([look(rank, trace, known.get(rank)) for rank, trace in traces.items()])


def look(rank: int, trace: Trace, run: RunInfo | None = None) -> Seen:
    """Take from a rank's trace what `compare` needs."""
    facts = find_facts(trace, run)
    covered = cover(facts)
    return Seen(rank, tuple(rank_times(rank, facts, covered, run)), communication(trace, facts), covered)


def compare(seen: Sequence[Seen]) -> Ranks:
    seen = sorted(seen, key=lambda one: one.rank)
    found = match({one.rank: one.communication for one in seen})
    table = found.table()
    return Ranks(
        times=tuple(row for one in seen for row in one.times),
        collectives=found,
        arrivals=arrivals(found.members, table),
        steps=table["step"].nunique(),
        wait_ns=float((table["wait_ns"] * table["weight"]).sum()) if len(table) else None,
        coverage={one.rank: one.coverage for one in seen},
    )


# --- one rank


def rank_times(rank: int, facts: Facts, covered: Coverage, run: RunInfo | None) -> list[RankTimes]:
    work, steps = facts.work, facts.steps
    unprofiled = run.step_ns() if run else None
    if covered.host_only:
        step = steps.host.mean_ns
        if covered.in_file.launches:
            return [RankTimes(rank, HOST, step, unprofiled, None, None, None, None, None)]
        rows = facts.host.rows
        ops = (rows["kind"] == OP).to_numpy()
        talk = communicates(rows["kind"].to_numpy(dtype=object), rows["name"].to_numpy(dtype=object))
        compute, talking, either = unions(facts.host.start, facts.host.end, ops, talk, steps.host)
        return [RankTimes(rank, HOST, step, unprofiled, None, compute, talking, either - compute, step - either)]
    found = []
    step = steps.device.mean_ns
    talk = communicates(work.kind, work.name)
    for device in np.unique(work.device):
        here = work.device == device
        compute, talking, busy = unions(work.start, work.end, here & ~talk, here & talk, steps.device)
        idle = None if covered.abstains else step - busy
        times = RankTimes(rank, int(device), step, unprofiled, busy, compute, talking, busy - compute, idle)
        found.append(times)
    return found


def unions(start: Ints, end: Ints, one: Mask, other: Mask, windows: Windows) -> tuple[float, float, float]:
    """ns of a mean step in which something of `one`, of `other`, of either goes on."""
    return (
        union_ns(start[one], end[one], windows),
        union_ns(start[other], end[other], windows),
        union_ns(start[one | other], end[one | other], windows),
    )


def union_ns(start: Ints, end: Ints, windows: Windows) -> float:
    bounds = np.unique(np.concatenate([start, end, windows.start, windows.end]))
    opened = np.bincount(np.searchsorted(bounds, start), minlength=len(bounds))
    closed = np.bincount(np.searchsorted(bounds, end), minlength=len(bounds))
    busy = np.cumsum(opened - closed)[:-1] > 0
    return float((np.diff(bounds) * weight_at(windows, bounds[:-1]))[busy].sum())


# --- all together


def arrivals(members: pd.DataFrame, table: pd.DataFrame) -> tuple[Arrivals, ...]:
    """What each member waits and causes, those who cause most first."""
    waits = members["wait_ns"].mul(members["weight"]).groupby([members["rank"], members["device"]])
    late = table.rename(columns={"last_rank": "rank", "last_device": "device"})
    late = late.assign(caused=late["wait_ns"] * late["weight"], early=late["early_ns"] * late["weight"])
    by_step = late.groupby(["step", "rank", "device"])[["caused"]].sum().sort_values("caused").reset_index()
    frame = pd.DataFrame({"collectives": waits.size(), "wait": waits.sum()})
    frame[["last", "caused", "early"]] = (
        late.groupby(["rank", "device"])
        .agg(last=("caused", "size"), caused=("caused", "sum"), early=("early", "sum"))
        .reindex(frame.index, fill_value=0)
    )
    frame["led"] = by_step.groupby("step").tail(1).groupby(["rank", "device"]).size().reindex(frame.index, fill_value=0)
    chance, steps = 1 / table["members"].min() if len(table) else 1.0, table["step"].nunique()
    found = []
    for (rank, device), count, wait, last, caused, early, led in frame.itertuples(name=None):
        tail = min(at_least(int(last), int(count), chance), at_least(int(led), steps, chance))
        luck = min(1.0, tail * len(frame))  # the most often late of several was picked
        counts = int(rank), int(device), int(count), int(last), int(led)
        found.append(Arrivals(*counts, float(wait), float(caused), float(early), luck))
    return tuple(sorted(found, key=lambda one: (-one.caused_ns, one.rank, one.device)))


def at_least(hits: int, tries: int, chance: float) -> float:
    """Probability of so many hits or more in independent tries (binomial)."""
    if chance >= 1:
        return 1.0
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, tries + 1)))])  # of the factorials
    k = np.arange(hits, tries + 1)
    ways = logs[tries] - logs[k] - logs[tries - k]
    return float(np.exp(ways + k * math.log(chance) + (tries - k) * math.log1p(-chance)).sum())


def doubts(found: Ranks) -> str | None:
    """Why no member is called the straggler, in one sentence; None where one stands out."""
    if len(found.times) < 2:
        return "only one rank is there: nobody to compare it with"
    if found.collectives.clock.name == "unknown":
        return "the ranks' clocks have no common zero, and no collective that ends everywhere at once lines them up"
    if found.wait_ns is None:
        return "no collective was found on two ranks"
    spent = sum(one.step_ns for one in found.times)
    if found.wait_ns <= LEAST * spent:
        return f"nobody is waited for: waiting takes {units.share(found.wait_ns / spent)} of the ranks' steps"
    first, second = found.arrivals[:2]
    share = first.caused_ns / found.wait_ns
    causes = f"{found.label(first)} causes {units.share(share)} of the waiting"
    if share < STANDS_OUT or first.caused_ns < APART * second.caused_ns:
        return f"none stands out: {causes}, {found.label(second)} {units.share(second.caused_ns / found.wait_ns)}"
    if first.luck > LUCK:
        return f"none stands out: {causes}, but {habit(found)}, which may be chance"
    return None


def habit(found: Ranks) -> str:
    first = found.arrivals[0]
    line = f"it came last to {first.came_last} of {first.collectives} collectives"
    return f"{line} and caused the most in {first.led_steps} of {found.steps} steps" if found.steps > 1 else line


def verdict(found: Ranks) -> str:
    """How sure it is that the first of the arrivals is the straggler, in one sentence."""
    first, waited = found.arrivals[0], found.wait_ns or 0.0
    return (
        f"{found.label(first)} causes {units.share(first.caused_ns / waited)} of the waiting "
        f"({units.time(first.caused_ns)} of {units.time(waited)} a step, all ranks together); {habit(found)} "
        f"(by chance: {units.share(first.luck)}); had it come with the next to last, these could have begun "
        f"{units.time(first.early_ns)} a step earlier"
    )
