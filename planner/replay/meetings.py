"""What ties the ranks of a run to each other: collectives, which end nowhere before they have begun everywhere.

What a member took once all had come is its transfer. What it was recorded to take before that is waiting: no time of
its own, since it follows from when the others come.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from qrprof.planner.replay.graph import NONE, ORIGIN, START, WAIT, Edges, Graph, Net, Nodes, arrange, edges, together
from qrprof.planner.replay.hosts import BOUNDARY
from qrprof.profiler.collectives import Collectives
from qrprof.profiler.nesting import Floats, Ints
from qrprof.profiler.work import AFTER_ALL

ALL_CAME: Final = BOUNDARY + 1  # among the nodes of one instant: after all starts


@dataclass(frozen=True)
class Meetings:
    """By member of a collective. Times are ns."""

    rank: Ints
    item: Ints  # of the rank's device work
    collective: Ints  # from 0 on
    weight: Floats  # of its step
    came: Ints  # when the last member came, on the common clock
    transfer: Floats  # from there to the member's own end
    least: Floats  # the shortest duration among the members

    @property
    def count(self) -> int:
        """Of collectives."""
        return int(self.collective.max(initial=NONE)) + 1

    @property
    def off_ns(self) -> float | None:
        """By how much a transfer differs from the shortest duration of its collective: the median; None: no member."""
        return float(np.median(np.abs(self.transfer - self.least))) if len(self.rank) else None


def clocks(graphs: Mapping[int, Graph], found: Collectives) -> dict[int, int]:
    """By rank what to add to the times in its graph to have them on the common clock, ns.

    A rank without collectives begins with the earliest of the others: nothing ties it to them.
    """
    ahead = {}
    for rank, graph in graphs.items():
        mine = found.members[found.members["rank"] == rank]
        if len(mine):
            ahead[rank] = int(mine["start"].iloc[0]) - int(graph.facts.work.began[mine["item"].iloc[0]])
    begins = {rank: int(graph.nodes.time[ORIGIN]) for rank, graph in graphs.items()}
    zero = min((begins[rank] + ns for rank, ns in ahead.items()), default=0)
    return {rank: ahead.get(rank, zero - begin) for rank, begin in begins.items()}


def find_meetings(graphs: Mapping[int, Graph], found: Collectives, ahead: Mapping[int, int]) -> Meetings:
    """The matched collectives that a replay can follow: what waits for a member's end comes after the last start."""
    rows = found.members
    parts = [_members(graph, rows[rows["rank"] == rank], ahead[rank]) for rank, graph in graphs.items()]
    frame = pd.concat(parts, ignore_index=True)
    groups = frame.groupby("collective")
    came = groups["start"].transform("max")
    frame = frame.assign(came=came, least=(frame["end"] - frame["start"]).groupby(frame["collective"]).transform("min"))
    frame = frame[(came < groups["until"].transform("min")).to_numpy(dtype=bool)]
    return Meetings(
        rank=frame["rank"].to_numpy(dtype=np.int64),
        item=frame["item"].to_numpy(dtype=np.int64),
        collective=pd.factorize(frame["collective"], sort=True)[0].astype(np.int64),
        weight=frame["weight"].to_numpy(dtype=np.float64),
        came=frame["came"].to_numpy(dtype=np.int64),
        transfer=(frame["end"] - frame["came"]).to_numpy(dtype=np.float64),
        least=frame["least"].to_numpy(dtype=np.float64),
    )


def _members(graph: Graph, mine: pd.DataFrame, ahead: int) -> pd.DataFrame:
    """A rank's members as its graph has them; `until` is the first moment that must not come before all have come."""
    work, item = graph.facts.work, mine["item"].to_numpy()
    first = np.full(len(work.start), AFTER_ALL)
    leaves = graph.edges.item >= 0
    np.minimum.at(first, graph.edges.item[leaves], graph.nodes.time[graph.edges.target[leaves]])
    start, end = work.start[item] + ahead, work.end[item] + ahead
    until = np.minimum(first, work.end)[item] + ahead
    return mine[["collective", "rank", "item", "weight"]].assign(start=start, end=end, until=until)


def transferring(graph: Graph, meetings: Meetings, rank: int) -> Graph:
    """The graph of a rank whose members of collectives take their transfers alone."""
    mine = meetings.rank == rank
    durations = graph.durations.copy()
    durations[meetings.item[mine]] = meetings.transfer[mine]
    return replace(graph, durations=durations)


@dataclass(frozen=True)
class Tied:
    """The graphs of all ranks as one net.

    The `row` of its edges is a place in the list of all weights: those of the ranks' beginnings, of the graphs' own
    edges, and of the members' coming, which are 0.
    """

    net: Net
    first: Mapping[int, int]  # by rank, its node ORIGIN
    begins: Floats  # by rank, ns after the earliest one
    met: int  # the node of the first collective: the moment at which all have come


def tie(graphs: Mapping[int, Graph], meetings: Meetings, ahead: Mapping[int, int]) -> Tied:
    """Join the graphs by a node a collective, which no start of a member may follow, and from which they transfer."""
    zero = min(int(graph.nodes.time[ORIGIN]) + ahead[rank] for rank, graph in graphs.items())
    times = [graph.nodes.time + (ahead[rank] - zero) for rank, graph in graphs.items()]
    places = 1 + np.cumsum([0, *map(len, times)])
    first, met = dict(zip(graphs, places.tolist(), strict=False)), int(places[-1])
    came = np.zeros(meetings.count, dtype=np.int64)
    came[meetings.collective] = meetings.came - zero
    nodes = Nodes(
        np.concatenate([[0], *times, came]),
        np.concatenate([[0], *(graph.nodes.rank for graph in graphs.values()), np.full(len(came), ALL_CAME)]),
    )
    start = np.array([first[rank] + graphs[rank].item0 for rank in meetings.rank.tolist()], dtype=np.int64)
    found = together(
        edges(np.zeros(len(graphs), dtype=np.int64), places[:-1], START),
        *(_own(graph, meetings, rank, first[rank], met) for rank, graph in graphs.items()),
        edges(start + meetings.item, met + meetings.collective, WAIT),
    )
    numbered = Edges(**{**vars(found), "row": np.arange(len(found.row))})
    return Tied(Net(*arrange(nodes, numbered)), first, np.array([float(time[ORIGIN]) for time in times]), met)


def _own(graph: Graph, meetings: Meetings, rank: int, first: int, met: int) -> Edges:
    """The edges of a rank's graph in the net: those from the end of a member count from when all have come."""
    mine = meetings.rank == rank
    from_all = np.full(len(graph.durations) + 1, NONE)  # the last place stands for no item
    from_all[meetings.item[mine]] = met + meetings.collective[mine]
    source = from_all[graph.edges.item]
    source = np.where(source >= 0, source, first + graph.edges.source)
    return Edges(**{**vars(graph.edges), "source": source, "target": first + graph.edges.target})
