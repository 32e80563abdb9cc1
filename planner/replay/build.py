"""From the facts of a trace to its graph."""

import numpy as np

from qrprof.planner.replay import handover, items, waits
from qrprof.planner.replay.graph import BOUND, NONE, Edges, Graph, Nodes, arrange, edges, together
from qrprof.planner.replay.hosts import BOUNDARY, DEVICE, FIRST_POINT, OWN, Waiting, lay, number, points
from qrprof.profiler.facts import Facts
from qrprof.profiler.nesting import Ints
from qrprof.profiler.steps import weight_at


def build(facts: Facts) -> Graph:
    """The graph of a trace, with all durations as recorded."""
    host, work, steps = facts.host, facts.work, facts.steps
    bursts, waiting, rules = handover.find_bursts(facts), waits.find_waits(facts), items.find_rules(facts)
    called = rules.called[rules.called >= 0]
    at_start = rules.at_start[rules.called >= 0]
    launching = points(host.track[called], np.where(at_start, host.start[called], host.end[called]), OWN)
    marks = points(steps.thread, np.concatenate([steps.host.start, steps.host.end]), OWN)
    placed, nodes = number([*bursts.points(), *waiting.points(facts), launching, marks])
    lines = lay(facts, placed, _both(bursts.waiting(), waiting.waiting(facts)), nodes[2])
    item0 = FIRST_POINT + len(placed.time)
    bound0 = item0 + len(work.start)
    calls = np.full(len(work.start), NONE)
    calls[rules.called >= 0] = nodes[6]
    bounds = bound0 + np.arange(len(nodes[7]))
    found = together(
        lines.edges,
        bursts.edges(*nodes[:4]),
        waiting.edges(item0, nodes[5]),
        items.find_edges(facts, rules, item0, calls),
        _bound_edges(facts, nodes[7], bounds, item0),
    )
    times = np.concatenate([[0], placed.time, work.start, np.concatenate([steps.device.start, steps.device.end])])
    ranks = np.concatenate([[0], placed.rank, np.full(len(work.start), DEVICE), np.full(len(bounds), BOUNDARY)])
    all_nodes = Nodes(times, ranks)
    kept, order, place = arrange(all_nodes, found)
    counted = weight_at(steps.device, work.start) > 0
    return Graph(
        facts=facts,
        nodes=all_nodes,
        edges=kept,
        order=order,
        place=place,
        segments=lines.segments,
        stretches=item0,
        item0=item0,
        bounds=bounds,
        durations=(work.end - work.start).astype(np.float64),
        explained=float(rules.explained[counted].mean()) if counted.any() else None,
    )


def _both(a: Waiting, b: Waiting) -> Waiting:
    return Waiting(**{name: np.concatenate([getattr(a, name), getattr(b, name)]) for name in vars(a)})


def _bound_edges(facts: Facts, marks: Ints, bounds: Ints, item0: int) -> Edges:
    """A boundary comes when the host has passed its mark and all work launched before it is done."""
    work, steps = facts.work, facts.steps
    times = np.concatenate([steps.host.start, steps.host.end])
    parts = [edges(marks, bounds, BOUND)]
    streams = np.stack([work.device, work.stream])
    for device, stream in np.unique(streams, axis=1).T.tolist():
        mine = np.flatnonzero((work.device == device) & (work.stream == stream))
        mine = mine[np.argsort(work.launched[mine], kind="stable")]
        place = np.searchsorted(work.launched[mine], times, side="left") - 1
        last = np.append(mine, NONE)[np.where(place < 0, len(mine), place)]
        held = last >= 0
        parts.append(edges(item0 + last[held], bounds[held], BOUND, item=last[held]))
    return together(*parts)
