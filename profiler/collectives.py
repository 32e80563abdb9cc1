"""The same collective found on several ranks: who arrived when, and who waited for whom.

Nothing in a trace names a collective. Communication kernels (on ranks without a device: what gloo or MPI annotates) of
the same step, stream, name and turn are taken for one collective, where those ranks that have any of them have equally
many. What is left of a communicator in a trace is its stream: where several share one, or groups of ranks have their
own, only what runs at the same time everywhere is kept.

A collective in which each rank needs all others (`BARRIER`) ends everywhere at once, and nowhere before it has begun
everywhere. That checks the ranks' clocks, and lines them up where they are unknown or wrong.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from qrprof.profiler.events import ANNOTATION, HOST, KERNEL, is_communication
from qrprof.profiler.facts import Facts
from qrprof.profiler.nesting import Ints, Mask, pick
from qrprof.profiler.steps import window_at
from qrprof.profiler.trace import Trace

WALL: Final = 10**18  # ns, in September 2001: a trace that begins before it does not count from 1970
BARRIER: Final = re.compile(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier", re.IGNORECASE)
AGREES: Final = 0.9  # of the barrier-like collectives, that clocks must not contradict
PLACE: Final = ["step", "lane", "name"]
MEMBER: Final = ["rank", "device"]
MEMBERS: Final = ["collective", "step", "weight", "lane", "name", *MEMBER, "item", "start", "end", "wait_ns"]


@dataclass(frozen=True)
class Clock:
    """How the ranks' times were made comparable."""

    name: str  # "recorded", "aligned" (by the ends of barrier-like collectives), "unknown"
    checked: int  # barrier-like collectives
    contradicted: int  # of them, those that end on one rank before they begin on another
    off_ns: float | None  # between their ends on two ranks: the median, of the rank where it is largest


@dataclass(frozen=True)
class Collectives:
    """`members` has a row for each collective and (rank, device) that takes part in it, with the columns collective (a
    number), step, weight (of the step), lane (number of the communication stream on its device, from 1), name, rank,
    device, item (of the rank's device work; on a host its row), start and end (ns, on the common clock), and wait_ns
    (its duration beyond the shortest, which is the transfer itself). Who waits in two at once waits once: that counts
    for the one that began first.
    """

    members: pd.DataFrame
    clock: Clock
    left_out: int  # communication in the steps that was not found again on another rank

    def table(self) -> pd.DataFrame:
        """One row a collective, in order of time.

        collective, step, weight, lane, name, start, members, latency_ns (the shortest duration), skew_ns (from the
        first to the last arrival), wait_ns (of all members), early_ns (how much earlier it could begin if the last came
        with the next to last; of several at once, the longest), last_rank, last_device.
        """
        rows = self.members.sort_values(["collective", "start", *MEMBER])
        groups = rows.assign(ns=rows["end"] - rows["start"]).groupby("collective")
        last = groups.tail(1).set_index("collective")
        first, before = groups["start"].min(), groups.nth(-2).set_index("collective")["start"]
        ahead = last.assign(start=before, end=last["start"])  # of the last member, all others had come
        table = last[["step", "weight", "lane", "name"]].assign(
            start=first,
            members=groups.size(),
            latency_ns=groups["ns"].min(),
            skew_ns=last["start"] - first,
            wait_ns=groups["wait_ns"].sum(),
            early_ns=longest(ahead),
            last_rank=last["rank"],
            last_device=last["device"],
        )
        return table.sort_values(["start", "lane"], kind="stable").reset_index()


# --- one rank


def communication(trace: Trace, facts: Facts) -> pd.DataFrame:
    """Communication of the recorded steps: device, lane, name, item, start and end (ns since 1970), step, weight."""
    frame, inside = _on_devices(facts) if len(facts.work.name) else _on_host(facts)
    steps = facts.steps
    frame = frame.assign(step=pick(steps.numbers, inside, -1), weight=pick(steps.host.weight, inside, 0.0))[inside >= 0]
    lane = frame.groupby("device")["stream"].rank("dense").astype(np.int64)
    frame = frame.assign(lane=lane, start=frame["start"] + trace.base_ns, end=frame["end"] + trace.base_ns)
    return frame.drop(columns="stream").sort_values("start", kind="stable")


def _on_devices(facts: Facts) -> tuple[pd.DataFrame, Ints]:
    """Communication kernels, and the place of each one's step: that of its launch, which is the same on all ranks."""
    talk = communicates(facts.work.kind, facts.work.name)
    work = facts.work.only(talk)
    inside = np.where(
        work.launch >= 0, window_at(facts.steps.host, work.launched), window_at(facts.steps.device, work.began)
    )
    columns = {"device": work.device, "stream": work.stream, "name": work.name, "item": np.flatnonzero(talk)}
    return pd.DataFrame(columns | {"start": work.began, "end": work.end}), inside


def _on_host(facts: Facts) -> tuple[pd.DataFrame, Ints]:
    """Any thread carries the next collective out: they are told apart by their order alone."""
    rows = facts.host.rows
    talk = communicates(objects(rows["kind"]), facts.host.names())
    frame = rows.loc[talk, ["name", "start", "end"]]
    frame = frame.assign(device=HOST, stream=0, name=objects(frame["name"]), item=np.flatnonzero(talk))
    return frame, window_at(facts.steps.host, frame["start"].to_numpy())


def communicates(kind: npt.NDArray[np.object_], name: npt.NDArray[np.object_]) -> Mask:
    """Which rows are communication: kernels of a device, annotations of the host."""
    names = [text for text in set(name) if is_communication(text)]
    found: Mask = np.isin(kind, [KERNEL, ANNOTATION]) & pd.Series(name, dtype=object).isin(names).to_numpy()
    return found


def objects(column: "pd.Series[Any]") -> npt.NDArray[np.object_]:
    return column.to_numpy(dtype=object)


# --- all ranks


def match(found: Mapping[int, pd.DataFrame]) -> Collectives:
    """Match the `communication` of several ranks."""
    frame = pd.concat([rows.assign(rank=rank) for rank, rows in found.items()], ignore_index=True)
    total = len(frame)
    frame["turn"] = frame.groupby([*PLACE, *MEMBER]).cumcount()
    counts = frame.groupby([*PLACE, *MEMBER], as_index=False).size()
    alike = counts.groupby(PLACE, as_index=False).agg(least=("size", "min"), most=("size", "max"), of=("size", "size"))
    frame = frame.merge(alike[(alike["least"] == alike["most"]) & (alike["of"] > 1)], on=PLACE)
    frame["collective"] = frame.groupby([*PLACE, "turn"]).ngroup()
    frame, clock = on_one_clock(frame, found)
    if clock.name == "unknown":
        frame = frame[:0]
    frame = frame[frame["collective"].map(overlaps(frame)).to_numpy(dtype=bool)]
    durations = frame["end"] - frame["start"]
    waits = once(frame.assign(end=frame["end"] - durations.groupby(frame["collective"]).transform("min")))
    return Collectives(frame.assign(wait_ns=waits)[MEMBERS].reset_index(drop=True), clock, total - len(frame))


def once(frame: pd.DataFrame) -> "pd.Series[int]":
    """ns from start to end of each row, without what an earlier row of the same member holds already."""
    rows = frame.sort_values("start", kind="stable")
    return (rows["end"] - rows["start"].clip(lower=held(rows))).clip(lower=0)


def longest(frame: pd.DataFrame) -> "pd.Series[int]":
    """ns from start to end of each row; of a member's rows that overlap, all together as much as the longest."""
    rows = frame.sort_values("start", kind="stable")
    member = [rows[column] for column in MEMBER]
    stretch = [*member, (rows["start"] >= held(rows)).groupby(member).cumsum()]
    most = (rows["end"] - rows["start"]).groupby(stretch).cummax()
    return most - most.groupby(stretch).shift(fill_value=0)


def held(rows: pd.DataFrame) -> "pd.Series[int]":
    """Until when the rows of the same member before each row last."""
    until = rows.groupby(MEMBER)["end"].cummax()
    return until.groupby([rows[column] for column in MEMBER]).shift(fill_value=np.iinfo(np.int64).min)


def overlaps(frame: pd.DataFrame) -> "pd.Series[bool]":
    """By collective whether it had begun everywhere before it ended anywhere."""
    groups = frame.groupby("collective")
    return groups["start"].max() <= groups["end"].min()


def on_one_clock(frame: pd.DataFrame, found: Mapping[int, pd.DataFrame]) -> tuple[pd.DataFrame, Clock]:
    """Times as recorded; lined up where the ranks have no common zero, or where collectives contradict their clocks."""
    barrier = frame["name"].map(lambda name: BARRIER.search(name) is not None).to_numpy(dtype=bool)
    recorded = check("recorded", frame[barrier])
    known = len(found) == 1 or all(rows["start"].min() >= WALL for rows in found.values() if len(rows))
    if known and recorded.contradicted <= (1 - AGREES) * recorded.checked:
        return frame, recorded
    shift = offsets(frame[barrier])
    reached = frame["rank"].isin(list(shift)).to_numpy()
    lined = frame[reached]
    behind = lined["rank"].map(shift)
    lined = lined.assign(start=lined["start"] + behind, end=lined["end"] + behind)
    aligned = check("aligned", lined[barrier[reached]])
    if aligned.checked and (not known or aligned.contradicted < recorded.contradicted):
        return lined, aligned
    return frame, recorded if known else Clock("unknown", recorded.checked, recorded.contradicted, None)


def check(name: str, barriers: pd.DataFrame) -> Clock:
    apart = end_times(barriers)
    off = float(apart.sub(apart.iloc[:, 0], axis="index").abs().median().max()) if len(apart) else None
    return Clock(name, len(apart), int((~overlaps(barriers)).sum()), off)


def offsets(barriers: pd.DataFrame) -> dict[Any, int]:
    """By rank what to add to its times so that, in the middle, collectives end with those of the first rank."""
    ends = end_times(barriers)
    if ends.empty:
        return {}
    behind = -ends.sub(ends.iloc[:, 0], axis="index").median()
    return {rank: round(ns) for rank, ns in behind.dropna().items()}


def end_times(barriers: pd.DataFrame) -> pd.DataFrame:
    """Ends by collective and rank, from the first one on: small numbers, for the table holds floats."""
    ends = barriers["end"] - barriers["end"].min()
    return barriers.assign(end=ends).pivot_table("end", "collective", "rank", aggfunc="max")
