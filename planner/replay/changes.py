"""What is changed in a replay: factors on what the host does, on device work, and dependencies that fall away."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from qrprof.planner.replay.graph import NONE, QUEUE, SYNC, Graph
from qrprof.profiler.collectives import communicates
from qrprof.profiler.events import CAUSES, COPY
from qrprof.profiler.facts import Facts, feeding_threads, launch_weight
from qrprof.profiler.idle import AWAY, LAUNCH
from qrprof.profiler.idle import COPY as COPY_CAUSE
from qrprof.profiler.idle import SYNC as SYNC_CAUSE
from qrprof.profiler.nesting import Floats, Ints, Mask, outermost, pick
from qrprof.profiler.owners import OPTIMIZER
from qrprof.profiler.steps import window_at

GRAPH_PAUSE_NS: Final = 300.0  # between the kernels of a CUDA graph; measured on an H200: 224 to 291


@dataclass(frozen=True)
class Changes:
    """Factors on the recorded times; 1 is unchanged.

    `cut` are dependencies that no longer hold. A pause between items of one stream is scaled down to `floor` at least.
    """

    segments: Floats
    items: Floats
    fixed: Floats  # by edge
    floor: Floats  # by edge, ns
    cut: Mask  # by edge


def unchanged(graph: Graph) -> Changes:
    edges = len(graph.edges.source)
    return Changes(
        np.ones(len(graph.segments.row)),
        np.ones(len(graph.durations)),
        np.ones(edges),
        np.zeros(edges),
        np.zeros(edges, dtype=bool),
    )


def both(a: Changes, b: Changes) -> Changes:
    return Changes(
        a.segments * b.segments, a.items * b.items, a.fixed * b.fixed, np.maximum(a.floor, b.floor), a.cut | b.cut
    )


def change_rows(graph: Graph, rows: Mask, factor: float, on_host: float | None = None) -> Changes:
    """All that these host rows do takes `factor` of its time: the device work they launch and their own.

    With `on_host`, other work takes the place of theirs: `on_host` is the factor of their own time, `factor` that of
    the device's, and what takes its place has no pauses but its own.
    """
    facts, edges = graph.facts, graph.edges
    owned = pick(rows, facts.work.launch, False)
    waits = (edges.kind == SYNC) & pick(rows, edges.row, False)
    fixed = np.where(pick(owned, edges.scales, False) | waits, factor, 1.0)
    if on_host is not None:
        queued = edges.kind == QUEUE
        after = pick(owned, np.where(queued, edges.target - graph.item0, NONE), False)
        fixed[queued & after & pick(owned, edges.item, False)] = 0.0
    return Changes(
        segments=np.where(pick(rows, graph.segments.row, False), factor if on_host is None else on_host, 1.0),
        items=np.where(owned, factor, 1.0),
        fixed=fixed,
        floor=np.zeros(len(waits)),
        cut=waits & (factor == 0),
    )


def change_items(graph: Graph, items: Mask, factor: float) -> Changes:
    """These items of device work take `factor` of their time."""
    none = unchanged(graph)
    return Changes(none.segments, np.where(items, factor, 1.0), none.fixed, none.floor, none.cut)


def change_cause(graph: Graph, cause: int, factor: float) -> Changes:
    """What the host does for one of `events.CAUSES` takes `factor` of its time; at 0 it waits for nothing there."""
    held = graph.facts.causes.held
    edges = graph.edges
    waits = (edges.kind == SYNC) & (pick(held, edges.row, NONE) == cause)
    none = unchanged(graph)
    return Changes(
        segments=np.where(pick(held, graph.segments.row, AWAY) == cause, factor, 1.0),
        items=none.items,
        fixed=np.where(waits, factor, 1.0),
        floor=none.floor,
        cut=waits & (factor == 0),
    )


def change_launches(graph: Graph, factor: float) -> Changes:
    """Launching takes `factor` of its time. At 0 the step is what one CUDA graph would make of it.

    Not only the launching calls go: so does what the host does between them, in ops and outside, which a replayed graph
    does not do again. Waits, copies that block and data loading stay, and so does what lies before the first and after
    the last launch of a step. Kernels of a graph follow each other more closely.
    """
    edges, pieces = graph.edges, graph.segments
    cause = pick(graph.facts.causes.held, pieces.row, AWAY)
    launching = (cause == LAUNCH) | ((cause == AWAY) & _between_launches(graph.facts, pieces.start))
    launching &= np.isin(pieces.thread, feeding_threads(graph.facts))
    queued = edges.kind == QUEUE
    none = unchanged(graph)
    return Changes(
        segments=np.where(launching, factor, 1.0),
        items=none.items,
        fixed=np.where(queued, factor, 1.0),
        floor=np.where(queued, GRAPH_PAUSE_NS, 0.0),
        cut=none.cut,
    )


def change_syncs(graph: Graph, factor: float) -> Changes:
    return change_cause(graph, SYNC_CAUSE, factor)


def change_copies(graph: Graph, factor: float) -> Changes:
    """Copies, on the device and while their callers wait for them."""
    copies = graph.facts.work.kind == COPY
    on_device = change_items(graph, copies, factor)
    return both(on_device, change_cause(graph, COPY_CAUSE, factor))


def change_communication(graph: Graph, factor: float) -> Changes:
    work = graph.facts.work
    return change_items(graph, communicates(work.kind, work.name), factor)


def owned_rows(facts: Facts, key: str) -> Mask:
    """The host rows of an op and of all that it calls."""
    inside: Mask = outermost(facts.host, (facts.host.rows["name"] == key).to_numpy()) >= 0
    return inside


def change_optimizer(graph: Graph, factor: float) -> Changes:
    """All that the optimizer's step does, on the host and on the device."""
    return change_rows(graph, graph.facts.owners.phase == OPTIMIZER, factor)


WORDS: Final[dict[str, Callable[[Graph, float], Changes]]] = {
    "launch": change_launches,
    "sync": change_syncs,
    "copy": change_copies,
    "comm": change_communication,
    "optimizer": change_optimizer,
}


def cause_of(key: str) -> int | None:
    """The cause that "gap:CAUSE" names; None: it is no such key."""
    word = key.removeprefix("gap:")
    return CAUSES.index(word) if key.startswith("gap:") and word in CAUSES else None


def _between_launches(facts: Facts, times: Ints) -> Mask:
    """Whether each time lies between the first and the last launch of a step."""
    windows = facts.steps.host
    starts = facts.host.start[np.unique(facts.work.launch[launch_weight(facts) > 0])]
    step = window_at(windows, starts)
    first, last = np.full(len(windows.start), np.iinfo(np.int64).max), np.full(len(windows.start), -1)
    np.minimum.at(first, step[step >= 0], starts[step >= 0])
    np.maximum.at(last, step[step >= 0], starts[step >= 0])
    mine = window_at(windows, times)
    found: Mask = (mine >= 0) & (times >= pick(first, mine, 0)) & (times < pick(last, mine, 0))
    return found
