"""From the facts of a trace to its graph."""

from collections.abc import Sequence

import numpy as np

from qrprof.planner.replay.graph import BOUND, NONE, Edges, Graph, Nodes, arrange, edges, together
from qrprof.planner.replay.handover import find_bursts
from qrprof.planner.replay.hosts import BOUNDARY, DEVICE, FIRST_POINT, OWN, Waiting, lay, number, points
from qrprof.planner.replay.items import find_edges, find_rules
from qrprof.planner.replay.limits import find_limits
from qrprof.planner.replay.records import awaited_by_items, by_launch, find_records
from qrprof.planner.replay.waits import find_waits
from qrprof.profiler.facts import Facts
from qrprof.profiler.nesting import Ints, pick
from qrprof.profiler.steps import weight_at
from qrprof.profiler.work import Work, by_stream, latest_ended


def build(facts: Facts) -> Graph:
    """The graph of a trace, with all durations as recorded."""
    host, work, steps = facts.host, facts.work, facts.steps
    zero = int(min(facts.trace.events["start"].min(), steps.host.start.min(), steps.device.start.min()))
    records = find_records(facts)
    told = awaited_by_items(facts, records)
    bursts, waiting, limits = find_bursts(facts), find_waits(facts, records), find_limits(facts)
    rules = find_rules(facts, told)
    called = rules.called[rules.called >= 0]
    at_start = rules.at_start[rules.called >= 0]
    launching = points(host.track[called], np.where(at_start, host.start[called], host.end[called]), OWN)
    marks = points(steps.thread, _marks(facts), OWN)
    wanted = [*bursts.points(), *waiting.points(facts), launching, marks, limits.points(facts)]
    placed, nodes = number(wanted)
    waits = _all([bursts.waiting(), waiting.waiting(facts), limits.waiting(facts)])
    lines = lay(facts, placed, waits, nodes[2], zero)
    item0 = FIRST_POINT + len(placed.time)
    calls = np.full(len(work.start), NONE)
    calls[rules.called >= 0] = nodes[6]
    bounds = item0 + len(work.start) + np.arange(len(nodes[7]))
    found = together(
        lines.edges,
        bursts.edges(*nodes[:4]),
        waiting.edges(item0, nodes[5]),
        limits.edges(facts, item0, calls),
        find_edges(facts, rules, told, item0, calls, zero),
        _bound_edges(facts, nodes[7], bounds, item0),
    )
    times = np.concatenate([[zero], placed.time, work.start, np.concatenate([steps.device.start, steps.device.end])])
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


def _marks(facts: Facts) -> Ints:
    """When the host passes the steps' boundaries. After its last event nothing says that it does anything."""
    last = facts.host.end.max(initial=facts.steps.host.start[0])
    marks: Ints = np.minimum(np.concatenate([facts.steps.host.start, facts.steps.host.end]), last)
    return marks


def _all(parts: Sequence[Waiting]) -> Waiting:
    return Waiting(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])})


def _bound_edges(facts: Facts, marks: Ints, bounds: Ints, item0: int) -> Edges:
    """A boundary comes when the host has passed its mark and all work launched before it is done."""
    work, steps = facts.work, facts.steps
    times = np.concatenate([steps.host.start, steps.host.end])
    parts = [edges(marks, bounds, BOUND)]
    for places in by_stream(work.device, work.stream):
        last = _ends_last(work, by_launch(work, places), times)
        held = last >= 0
        parts.append(edges(item0 + last[held], bounds[held], BOUND, item=last[held]))
    return together(*parts)


def _ends_last(work: Work, items: Ints, times: Ints) -> Ints:
    """Of items in order of launch the one launched before each of `times` that ends last; NONE: none was."""
    place = np.searchsorted(work.launched[items], times, side="left") - 1
    return pick(items[latest_ended(work.end[items])], place, NONE)
