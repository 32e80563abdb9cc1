"""The critical path: what the mean step waited for, one thing after the other.

From the last step boundary back to the first, each node leads to the edge that came last, which is the one that it
waited for. What the edges on the way are made of (host segments, device work, delays) tiles the time between the
boundaries without a hole. Cut at the boundaries, and weighed as the steps are, its lengths sum to the mean step.
"""

from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from qrprof.planner.replay.changes import unchanged
from qrprof.planner.replay.graph import NONE, ORIGIN, Graph
from qrprof.planner.replay.model import Model, times_of, weights_of
from qrprof.planner.replay.waits import blocking_copies
from qrprof.profiler import idle
from qrprof.profiler.events import COPY, MEMSET, OP, RUNTIME, is_communication
from qrprof.profiler.nesting import Floats, Ints, Mask, named, pick
from qrprof.profiler.partition import UNATTRIBUTED
from qrprof.profiler.work import LAUNCH_NAMES

Number = TypeVar("Number", np.int64, np.float64)

# What a stretch is; the order is that of WHAT.
(
    HOST_OP,
    HOST_CALL,
    OUTSIDE,
    LOADING,
    ALLOCATING,
    DELAY,
    KERNEL,
    COPYING,
    SETTING,
    COLLECTIVE,
    PAUSE,
    OTHER_STREAM,
    RETURN,
    HAND_OVER,
    FULL,
    RESIDUAL,
    BEFORE,
) = range(17)
WHAT: Final = (
    "host op",
    "host call",
    "python or pause",
    "data loading",
    "allocation",
    "launch delay",
    "kernel",
    "copy",
    "memset",
    "communication",
    "pause between kernels",
    "wait for another stream",
    "return from a wait",
    "hand-over",
    "launch queue full",
    "unexplained residual",
    "before the first event",
)
# What bounds it; the order is that of BOUND_BY.
HOST, DATA, LAUNCHING, COMPUTE, COPIES, COMMUNICATION, SYNCS, UNEXPLAINED = range(8)
BOUND_BY: Final = ("host", "data", "launch", "device compute", "memory copy", "communication", "sync", "unexplained")
USUAL: Final = {  # what bounds each kind, where its host row says nothing else
    LOADING: DATA,
    DELAY: LAUNCHING,
    KERNEL: COMPUTE,
    COPYING: COPIES,
    SETTING: COMPUTE,
    COLLECTIVE: COMMUNICATION,
    PAUSE: LAUNCHING,
    OTHER_STREAM: SYNCS,
    RETURN: SYNCS,
    FULL: SYNCS,
    RESIDUAL: UNEXPLAINED,
    BEFORE: UNEXPLAINED,
}
# By kind of edge, in the order of EDGE_LABELS, what its fixed part is.
LEADS: Final = np.array([BEFORE, OUTSIDE, DELAY, PAUSE, OTHER_STREAM, RETURN, HAND_OVER, FULL, OUTSIDE])


@dataclass(frozen=True)
class CriticalPath:
    """`rows`: the stretches in order of time, with these columns.

    step, weight (of the step in the mean one); start, end: ns of the record; from_ns, to_ns: ns of the calibrated
    replay; ns: what it adds to the mean step; what (one of WHAT), bound (one of BOUND_BY); name: the innermost host row
    or the item of device work ("": nothing recorded), op: its owner, phase, where; thread, or device and stream (-1:
    none); row and item: places in the facts' nesting and work (-1: none). A stretch of the replay that the record
    has in another step is empty there: its start is its end.
    """

    rows: pd.DataFrame
    step_ns: float  # the mean step, to which `ns` sums


@dataclass(frozen=True)
class _Pieces:
    """What the edges on the way are made of, in order of time; each ends where the next begins."""

    edge: Ints
    turn: Ints  # within its edge
    kind: Ints
    ns: Floats  # before the uniform factor
    began: Ints  # in the record
    row: Ints
    item: Ints
    thread: Ints

    def take(self, kept: Mask | Ints) -> "_Pieces":
        return _Pieces(**{name: column[kept] for name, column in vars(self).items()})


def find_path(model: Model) -> CriticalPath:
    """The critical path of the unchanged, calibrated replay. It means nothing where the model is withheld."""
    graph = model.graph
    same = unchanged(graph)
    weights, times = weights_of(model, same), times_of(model, same)
    way = _way(graph, times / model.uniform + 0.0, weights)
    pieces = _pieces(model, way, weights)
    reached = times[graph.edges.source[way]]
    offset = pd.Series(pieces.ns).groupby(pieces.edge).cumsum().to_numpy() - pieces.ns
    begin = _tiled(reached[pieces.edge] + offset * model.uniform, times[graph.bounds[-1]])
    began = _tiled(pieces.began, graph.nodes.time[graph.bounds[-1]])
    piece, rows = _cut(graph, times, begin, began)
    rows, pieces = rows[pieces.ns[piece] > 0].reset_index(drop=True), pieces.take(piece[pieces.ns[piece] > 0])
    return CriticalPath(pd.concat([rows, _tell(graph, pieces)], axis=1), float(rows["ns"].sum()))


def by_bound(path: CriticalPath) -> pd.DataFrame:
    """ns of the mean step by what bounds it, and what that is: columns bound, what, ns, stretches, largest bound first.

    `stretches` are those of the mean step.
    """
    return _sums(path, ["bound", "what"])


def by_op(path: CriticalPath) -> pd.DataFrame:
    """ns of the mean step by op: columns op, bound, ns, stretches, the largest first."""
    return _sums(path, ["op", "bound"])


def _sums(path: CriticalPath, by: list[str]) -> pd.DataFrame:
    rows = path.rows.assign(stretches=path.rows["weight"])
    sums = rows.groupby(by, sort=True)[["ns", "stretches"]].sum().reset_index()
    return sums.sort_values("ns", ascending=False, kind="stable").reset_index(drop=True)


def _way(graph: Graph, times: Floats, weights: Floats) -> Ints:
    """The edges of the path in order of time. `times` are those before the uniform factor.

    Of edges that come at the same instant the last in their order holds, which is the device's rather than the host's.
    """
    edges = graph.edges
    target = graph.place[edges.target]
    order = np.lexsort((times[edges.source] + weights, target))  # stable
    last = np.flatnonzero(np.append(np.diff(target[order]) != 0, True)[: len(order)])
    binding = np.full(len(graph.order), NONE)
    binding[edges.target[order[last]]] = order[last]
    leads, source = binding.tolist(), edges.source.tolist()
    found = []
    node = int(graph.bounds[-1])
    while node != ORIGIN and (edge := leads[node]) != NONE:
        found.append(edge)
        node = source[edge]
    return np.array(found[::-1], dtype=np.int64)


def _pieces(model: Model, way: Ints, weights: Floats) -> _Pieces:
    graph = model.graph
    edges = graph.edges.take(way)
    at, nodes = np.arange(len(way)), graph.nodes.time
    source, target = nodes[edges.source], nodes[edges.target]
    work = graph.facts.work
    works = at[edges.item >= 0]
    item = edges.item[works]
    # Where the edge did not hold the target up in the record, what is left there is no part of the path.
    after = np.where(edges.item >= 0, pick(work.end, edges.item, 0), np.where(edges.stretch >= 0, target, source))
    late = (after + edges.fixed - edges.residual).astype(np.int64)
    left = (after + edges.fixed).astype(np.int64)
    whose = {"row": edges.row, "item": edges.scales}
    parts = [
        _part(works, 0, _work_kinds(graph)[item], graph.durations[item], source[works], item=item),
        _host_pieces(model, edges.stretch, source, target),
        _part(at, 2, LEADS[edges.kind], edges.fixed - edges.residual, after, **whose),
        _part(at, 3, np.full(len(at), RESIDUAL), edges.residual, late, **whose),
        _part(at, 4, np.full(len(at), RESIDUAL), np.zeros(len(at)), left),
    ]
    found = _Pieces(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])})
    return found.take(np.lexsort((found.began, found.turn, found.edge)))


def _part(edge: Ints, turn: int, kind: Ints, ns: Floats, began: Ints, **columns: Ints) -> _Pieces:
    none = np.full(len(edge), NONE)
    empty = dict.fromkeys(("row", "item", "thread"), none)
    return _Pieces(edge, np.full(len(edge), turn), kind, ns, began, **(empty | columns))


def _host_pieces(model: Model, stretch: Ints, source: Ints, target: Ints) -> _Pieces:
    """The segments of the host stretches of edges, which begin and end in the record at `source` and `target`."""
    graph, segments = model.graph, model.graph.segments
    order = np.lexsort((segments.start, segments.stretch))
    held = np.flatnonzero(stretch >= 0)
    first, last = (np.searchsorted(segments.stretch[order], stretch[held], side=side) for side in ("left", "right"))
    count = last - first
    edge = np.repeat(held, count)
    place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    mine = order[place]
    row = segments.row[mine]
    began = np.clip(segments.start[mine], source[edge], target[edge])
    kind = _host_kinds(graph)[row]  # the last one is that of NONE
    return _part(edge, 1, kind, model.host_ns[mine], began, row=row, thread=segments.thread[mine])


def _work_kinds(graph: Graph) -> Ints:
    """By item of device work."""
    work = graph.facts.work
    collective = {name: is_communication(name) for name in set(work.name)}
    by_name = np.array([collective[name] for name in work.name], dtype=bool)
    return np.select([by_name, work.kind == COPY, work.kind == MEMSET], [COLLECTIVE, COPYING, SETTING], KERNEL)


def _host_kinds(graph: Graph) -> Ints:
    """By host row, that of no row last."""
    facts = graph.facts
    kind = facts.host.rows["kind"]
    tests = [
        facts.causes.held == idle.DATA,
        kind == OP,
        (kind == RUNTIME) & (facts.causes.own == idle.ALLOC),
        kind == RUNTIME,
        named(facts.host, is_communication),
    ]
    return np.append(np.select(tests, [LOADING, HOST_OP, ALLOCATING, HOST_CALL, COLLECTIVE], OUTSIDE), OUTSIDE)


def _tiled(begins: npt.NDArray[Number], end: Number) -> npt.NDArray[Number]:
    """Where each piece begins, and the end of the last. One that would begin after the next is empty.

    A device's clock may run ahead of the host's: work then ends after the call that waited for it.
    """
    found: npt.NDArray[Number] = np.minimum.accumulate(np.append(begins, end)[::-1])[::-1]
    return found


def _cut(graph: Graph, times: Floats, begin: Floats, began: Ints) -> tuple[Ints, pd.DataFrame]:
    """(piece, rows) for each piece within each step; `begin` and `began` are tiled, of the replay and the record."""
    steps = graph.facts.steps
    bounds = times[graph.bounds].reshape(2, -1).T.tolist()
    windows = zip(steps.device.start.tolist(), steps.device.end.tolist(), strict=True)
    whose = zip(steps.numbers.tolist(), steps.device.weight.tolist(), strict=True)
    pieces, rows = [], []
    for (opens, closes), window, (number, weight) in zip(bounds, windows, whose, strict=True):
        first = max(int(np.searchsorted(begin, opens, side="right")) - 1, 0)
        last = min(int(np.searchsorted(begin, closes, side="left")), len(begin) - 1)
        own = slice(first, last + 1)
        at, recorded = np.clip(begin[own], opens, closes), np.clip(began[own], *window)
        there = np.flatnonzero(np.diff(at) > 0)
        pieces.append(first + there)
        columns = {"start": recorded[there], "end": recorded[there + 1], "from_ns": at[there], "to_ns": at[there + 1]}
        rows.append(pd.DataFrame({"step": number, "weight": weight, **columns}))
    found = pd.concat(rows, ignore_index=True)
    return np.concatenate(pieces), found.assign(ns=(found["to_ns"] - found["from_ns"]) * found["weight"])


def _tell(graph: Graph, pieces: _Pieces) -> pd.DataFrame:
    """The columns from `what` on."""
    facts, work = graph.facts, graph.facts.work
    on_device = pieces.item >= 0
    row = np.where(on_device, pick(work.launch, pieces.item, NONE), pieces.row)
    cause = np.where(on_device, idle.LAUNCH, pick(facts.causes.held, row, idle.AWAY))
    told = idle.tell(facts.host, facts.owners, idle.Pieces(pieces.began, pieces.ns, cause, row))
    thread = np.where(on_device, NONE, np.where(row >= 0, pick(facts.host.track, row, NONE), pieces.thread))
    thread = np.where(pieces.kind == HAND_OVER, np.append(thread[1:], NONE)[: len(thread)], thread)  # to whom
    return pd.DataFrame(
        {
            "what": np.array(WHAT, dtype=object)[pieces.kind],
            "bound": np.array(BOUND_BY, dtype=object)[_bounds(graph, pieces, row)],
            "name": np.where(on_device, pick(work.name, pieces.item, ""), pick(facts.owners.name, row, "")),
            "op": np.where(on_device & (row < 0), UNATTRIBUTED, told["op"]),
            "phase": told["phase"],
            "where": told["where"],
            "thread": thread,
            "device": pick(work.device, pieces.item, NONE),
            "stream": pick(work.stream, pieces.item, NONE),
            "row": row,
            "item": pieces.item,
        }
    )


def _bounds(graph: Graph, pieces: _Pieces, row: Ints) -> Ints:
    facts, host = graph.facts, graph.facts.host
    usual = np.array([USUAL.get(kind, HOST) for kind in range(len(WHAT))])[pieces.kind]
    calls = (host.rows["kind"] == RUNTIME).to_numpy() & named(host, LAUNCH_NAMES.search)
    calls[facts.work.launch[facts.work.launch >= 0]] = True
    cause = pick(facts.causes.held, row, idle.AWAY)
    by_row = np.isin(pieces.kind, [HOST_OP, HOST_CALL, OUTSIDE, RETURN])
    staged = (pieces.kind == DELAY) & pick(blocking_copies(facts), pieces.item, False)
    tests = [
        by_row & (cause == idle.DATA),
        by_row & (cause == idle.SYNC),
        staged | (by_row & (cause == idle.COPY)),
        by_row & pick(calls, row, False),
    ]
    return np.select(tests, [DATA, SYNCS, COPIES, LAUNCHING], usual)
