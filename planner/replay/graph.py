"""The graph that is replayed: points in time, and what each has to wait for.

A node is a moment: a point on a host thread, the start of an item of device work, a boundary of a step. It comes
as early as its edges let it: an edge from u to v says "not before time(u) + weight". So a replay is the longest path
to each node, found in one pass, and it can only grow when a duration does.

An edge's weight is `fixed`, plus a host stretch (what a thread did between two of its points, in segments that
changes may scale), plus the duration of the item it starts from (it then leaves that item's end).
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from qrprof.profiler.facts import Facts
from qrprof.profiler.nesting import Floats, Ints, Mask

ORIGIN: Final = 0  # the node at the trace's zero
NONE: Final = -1

# Kinds of edges. The order is that of EDGE_LABELS.
START, HOST, LAUNCH, QUEUE, WAIT, SYNC, HANDOVER, LIMIT, BOUND = range(9)
EDGE_LABELS: Final = (
    "start of the trace",
    "host",
    "launch delay",
    "stream order",
    "wait for another stream",
    "synchronisation",
    "hand-over between threads",
    "launch queue full",
    "step boundary",
)


@dataclass(frozen=True)
class Edges:
    """`stretch`, `item` and `row` are NONE where an edge has no such part."""

    source: Ints
    target: Ints
    kind: Ints
    fixed: Floats  # ns
    residual: Floats  # ns, the part of `fixed` that no rule explains
    stretch: Ints
    item: Ints
    scales: Ints  # the item that starts at the target, whose changes scale `fixed`; NONE
    row: Ints  # the host's call that launches or waits

    def take(self, kept: Mask | Ints) -> "Edges":
        return Edges(**{name: column[kept] for name, column in vars(self).items()})


def edges(source: Ints, target: Ints, kind: int, **columns: Any) -> Edges:
    """Edges of one kind; columns that are not given are empty parts."""
    count = len(source)
    empty: dict[str, Any] = {"fixed": np.zeros(count), "residual": np.zeros(count)}
    empty |= {name: np.full(count, NONE, dtype=np.int64) for name in ("stretch", "item", "scales", "row")}
    return Edges(source, target, np.full(count, kind, dtype=np.int64), **(empty | columns))


def together(*parts: Edges) -> Edges:
    return Edges(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])})


@dataclass(frozen=True)
class Segments:
    """What the host threads did: stretches of time in which the innermost row of a thread does not change."""

    start: Ints
    row: Ints  # in the facts' nesting; NONE: nothing recorded, a pause
    thread: Ints
    ns: Floats  # of its own; waiting is not, since it follows from what is awaited
    stretch: Ints


@dataclass(frozen=True)
class Nodes:
    """By node: when it came in the record, and the order of nodes of one instant."""

    time: Ints
    rank: Ints


@dataclass(frozen=True)
class Net:
    """Edges are sorted by target, targets and sources by `order` (a topological order: no edge goes back in it)."""

    edges: Edges
    order: Ints  # the nodes, sorted
    place: Ints  # of each node in `order`


@dataclass(frozen=True)
class Graph(Net):
    """The net of a trace, and what its nodes and edges stand for."""

    facts: Facts
    nodes: Nodes
    segments: Segments
    stretches: int
    item0: int  # the node of the first item of work; the others follow
    bounds: Ints  # nodes of the step boundaries: the start of each step, then the end of each
    durations: Floats  # of the items, ns
    explained: float | None  # share of device starts in the steps that follow from an edge within 3 us; None: no device


def arrange(nodes: Nodes, found: Edges) -> tuple[Edges, Ints, Ints]:
    """(edges, order, place): in a topological order, without the edges that would go back (ties of one instant)."""
    order = np.lexsort((nodes.rank, nodes.time))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    kept = found.take(place[found.source] < place[found.target])
    by_target = np.argsort(place[kept.target], kind="stable")
    return kept.take(by_target), order, place


@dataclass(frozen=True)
class Program:
    """The edges as a list of steps "value = max(a, b)" over two earlier values; more than two fold in one by one."""

    first: Ints  # per step: the edge, and the value it starts from (NONE: the edge is missing)
    second: Ints
    from_first: list[int]
    from_second: list[int]
    value: Ints  # of each node: the step that holds it


def compile_steps(graph: Net) -> Program:
    """A step a node, and one more for each edge beyond the second."""
    target = graph.place[graph.edges.target]
    count = len(graph.order)
    incoming = np.bincount(target, minlength=count)
    opens = np.append(0, np.cumsum(incoming))[:-1]  # the first edge of each place
    steps = np.maximum(incoming - 1, 1)
    last = np.cumsum(steps) - 1  # the step that completes each place
    begin = last - steps + 1
    total = int(steps.sum())
    first, second = np.full(total, NONE), np.full(total, NONE)
    has = incoming > 0
    first[begin[has]] = opens[has]
    edge = np.arange(len(target))
    nth = edge - opens[target]
    later = nth >= 1
    second[begin[target[later]] + nth[later] - 1] = edge[later]
    source = last[graph.place[graph.edges.source]]
    chained = np.ones(total, dtype=bool)
    chained[begin] = False  # the steps that go on from the one before
    from_first = np.where(chained, np.arange(total) - 1, np.where(first >= 0, source[first], NONE))
    from_second = np.where(second >= 0, source[second], NONE)
    return Program(
        first=np.where(chained, NONE, first),
        second=second,
        from_first=from_first.tolist(),
        from_second=from_second.tolist(),
        value=last[graph.place],
    )


def run(program: Program, weights: Floats) -> Floats:
    """The time of each node, ns, for these edge weights."""
    padded = np.append(weights, 0.0)
    first = padded[program.first]
    second = np.where(program.second >= 0, padded[program.second], 0.0)
    values: list[float] = []
    add = values.append
    for a, wa, b, wb in zip(program.from_first, first.tolist(), program.from_second, second.tolist(), strict=True):
        x = values[a] + wa if a >= 0 else 0.0
        if b >= 0 and (y := values[b] + wb) > x:
            x = y
        add(x)
    return np.array(values)[program.value]


def weights(graph: Graph, segment_ns: Floats, durations: Floats, fixed: Floats) -> Floats:
    """The edges' weights for these segments, durations of items, and fixed parts."""
    stretch = np.append(np.bincount(graph.segments.stretch, weights=segment_ns, minlength=graph.stretches), 0.0)
    item = np.append(durations, 0.0)
    found: Floats = fixed + stretch[graph.edges.stretch] + item[graph.edges.item]
    return found
