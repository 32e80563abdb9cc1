"""Host threads in the graph: points that others depend on, and what each thread did between them.

A thread's points are the ends of its launching calls, the starts and ends of calls that wait for the device, the
boundaries of steps, and where it hands over to another thread. What lies between two points is a stretch, made of
segments with one innermost row each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from qrprof.planner.replay.graph import HANDOVER, HOST, ORIGIN, START, Edges, Nodes, Segments, edges, together
from qrprof.profiler.facts import Facts
from qrprof.profiler.nesting import Floats, Ints, distinct, row_at, segments

# The order of nodes of one instant: a wait is over before its thread goes on, and a thread's launch before the work.
WAITED, TAKES, HANDS, OWN, DEVICE, BOUNDARY = range(6)
FIRST_POINT: Final = 1  # the node after ORIGIN


@dataclass(frozen=True)
class Points:
    """Moments on host threads, in any order; several may be one moment."""

    thread: Ints
    time: Ints
    rank: Ints


def points(thread: Ints | int, time: Ints, rank: int) -> Points:
    count = len(time)
    return Points(np.broadcast_to(thread, count).astype(np.int64), time.astype(np.int64), np.full(count, rank))


@dataclass(frozen=True)
class Waiting:
    """Stretches of threads, between two of their points each, that are no time of their own but for `own` ns."""

    thread: Ints
    start: Ints
    end: Ints
    row: Ints  # the waiting call; NONE: a pause
    own: Floats


@dataclass(frozen=True)
class Lines:
    """The threads laid out; nodes are numbered from FIRST_POINT by thread, time and rank."""

    thread: Ints
    nodes: Nodes
    segments: Segments
    edges: Edges


def number(wanted: Sequence[Points]) -> tuple[Points, list[Ints]]:
    """All different points by thread, time and rank, and the nodes of each of the `wanted`."""
    thread, time, rank = (
        np.concatenate([getattr(part, name) for part in wanted]) for name in ("thread", "time", "rank")
    )
    order = np.lexsort((rank, time, thread))
    columns = np.stack([thread[order], time[order], rank[order]])
    fresh = np.append(True, (np.diff(columns, axis=1) != 0).any(axis=0))[: len(order)]
    node = np.empty(len(order), dtype=np.int64)
    node[order] = np.cumsum(fresh) - 1 + FIRST_POINT
    sizes = np.cumsum([len(part.time) for part in wanted])[:-1]
    return Points(*columns[:, fresh]), np.split(node, sizes)


def lay(facts: Facts, placed: Points, waiting: Waiting, handed: Ints, zero: int) -> Lines:
    """Lay out the threads on which points are placed. `handed` are the nodes that start when another thread
    says so; `zero` is the time of ORIGIN.
    """
    pieces = [_segments(facts, placed, waiting, thread) for thread in np.unique(placed.thread).tolist()]
    found = Segments(**{name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in vars(pieces[0])})
    found = replace(found, ns=np.where(np.isin(found.stretch, handed), 0.0, found.ns))  # the rest before a burst
    return Lines(placed.thread, Nodes(placed.time, placed.rank), found, _chains(facts, placed, handed, zero))


def _segments(facts: Facts, placed: Points, waiting: Waiting, thread: int) -> Segments:
    here = np.flatnonzero(placed.thread == thread)
    times = placed.time[here]
    line = segments(facts.host, thread)
    cuts = distinct(line.start[(line.start > times[0]) & (line.start < times[-1])], times)
    start, end = cuts[:-1], cuts[1:]
    mine = np.flatnonzero(waiting.thread == thread)
    mine = mine[np.argsort(waiting.start[mine], kind="stable")]
    place = np.searchsorted(waiting.start[mine], start, side="right") - 1
    waits = start < np.append(waiting.end[mine], times[0])[place] if len(mine) else np.zeros(len(start), dtype=bool)
    stretch = here[0] + np.searchsorted(times, end, side="left") + FIRST_POINT
    own = here[0] + np.searchsorted(times, waiting.end[mine], side="left") + FIRST_POINT
    return Segments(
        start=np.concatenate([start, waiting.start[mine]]),
        row=np.concatenate([row_at(line, start), waiting.row[mine]]),
        thread=np.full(len(start) + len(mine), thread),
        ns=np.concatenate([np.where(waits, 0.0, end - start), waiting.own[mine]]),
        stretch=np.concatenate([stretch, own]),
    )


def _chains(facts: Facts, placed: Points, handed: Ints, zero: int) -> Edges:
    """Each point after the one before it on its thread; a thread's first point after the steps' own thread."""
    node = np.arange(len(placed.time)) + FIRST_POINT
    opens = np.append(True, np.diff(placed.thread) != 0)[: len(node)]
    waits_for_another = np.isin(node, handed)
    follows = node[~opens & ~waits_for_another]
    chain = edges(follows - 1, follows, HOST, stretch=follows)
    return together(chain, _starts(facts, placed, node[opens & ~waits_for_another], zero))


def _starts(facts: Facts, placed: Points, first: Ints, zero: int) -> Edges:
    """Threads that nothing starts keep their distance from what the steps' thread did last before them."""
    time = placed.time[first - FIRST_POINT]
    main = np.flatnonzero(placed.thread == facts.steps.thread) + FIRST_POINT
    place = np.searchsorted(placed.time[main - FIRST_POINT], time, side="left") - 1
    on_main = np.isin(first, main) | (place < 0)
    anchor = np.append(main, ORIGIN)[place]
    source = np.where(on_main, ORIGIN, anchor)
    since = np.where(on_main, zero, np.append(placed.time, zero)[anchor - FIRST_POINT])
    kind = np.where(on_main, START, HANDOVER)
    found = edges(source, first, START, fixed=(time - since).astype(np.float64))
    return Edges(**{**vars(found), "kind": kind})
