"""What holds for the replay of any program: against the simulator, and by itself."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from replay_asks import changes, model, predict
from replay_cases import (
    NODE,
    SIDE,
    Action,
    Backward,
    Busy,
    Change,
    GraphLaunch,
    Item,
    Launch,
    Load,
    Machine,
    Op,
    Record,
    Rules,
    Synchronize,
    WaitEvent,
    steps,
)

from qrprof.planner.replay.changes import Changes, both, change_items, unchanged
from qrprof.planner.replay.graph import Graph
from qrprof.planner.replay.model import Model, step_of, times_of
from qrprof.profiler.events import MARK_PREFIX
from qrprof.profiler.trace import Trace

# One delay for all rules: then each item shows the one that held it, and the typical ones are the machine's own.
ALIKE = Rules(delay=1000, pause=1000, inside=1000, wait=1000)
STREAMS = (7, SIDE)
# Before the steps: samples of each rule, and then so long a rest that no change there reaches into the steps.
SAMPLES: list[Action] = [part for stream in STREAMS for part in (Launch("first", 100, stream), Busy(9000))]
AT_REST: tuple[Action, ...] = (*SAMPLES * 3, Busy(1_000_000))

lengths = st.integers(1, 40).map(lambda us: 1000 * us + 1)  # odd: few moments are one
launches = st.builds(Launch, st.sampled_from(["gemm", "add"]), lengths, st.sampled_from(STREAMS))
graphs = st.builds(
    GraphLaunch,
    st.lists(st.tuples(st.sampled_from(["gemm", "add"]), lengths), min_size=2, max_size=5).map(tuple),
    st.sampled_from(STREAMS),
)
own = st.builds(Busy, lengths)
syncs = st.builds(Synchronize, st.sampled_from([None, *STREAMS]))
items = st.builds(Item, lengths, st.sampled_from(STREAMS))


def ops(inside: st.SearchStrategy[Action]) -> st.SearchStrategy[Action]:
    bodies = st.lists(inside, min_size=1, max_size=3)
    return st.builds(
        lambda name, body: Op(name, (Busy(501), *body)), st.sampled_from(["aten::mm", "aten::add"]), bodies
    )


inner = st.one_of(own, launches, graphs, syncs, ops(st.one_of(own, launches, items)))
nodes = st.lists(ops(inner), min_size=1, max_size=3).map(lambda body: Op(NODE, (Launch("gemm", 5003), *body)))
crossing = st.lists(inner, max_size=2).flatmap(
    lambda body: st.sampled_from(STREAMS).map(
        lambda stream: (Record("e", stream), *body, WaitEvent("e", SIDE if stream == 7 else 7))
    )
)
outer: st.SearchStrategy[tuple[Action, ...]] = st.one_of(
    st.one_of(
        own,
        ops(inner),
        items,
        st.builds(Load, lengths),
        st.builds(Backward, st.lists(nodes, min_size=1, max_size=2).map(tuple)),
    ).map(lambda action: (action,)),
    crossing,
)
bodies = st.lists(outer, min_size=1, max_size=6).map(lambda parts: tuple(action for part in parts for action in part))
programs = st.lists(bodies, min_size=1, max_size=3).map(lambda found: steps(*found, before=AT_REST))

factors = st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0])
asked = st.one_of(
    st.builds(Change, ops=st.dictionaries(st.sampled_from(["aten::mm", "aten::add", NODE]), factors, min_size=1)),
    st.builds(Change, kernels=st.dictionaries(st.sampled_from(["gemm", "add"]), factors, min_size=1)),
    st.builds(Change, causes=st.dictionaries(st.sampled_from(["launch", "sync", "copy", "data"]), factors, min_size=1)),
)


@settings(max_examples=50)
@given(programs)
def test_unchanged_it_gives_the_record(program: tuple[Action, ...]) -> None:
    machine = Machine(program, rules=ALIKE)
    found = model(machine.trace)
    assert found.error == pytest.approx(0, abs=1e-12)
    assert found.base_ns == pytest.approx(machine.mean_step(), abs=1e-3)


@given(programs, asked)
def test_changed_it_gives_what_the_simulator_does(program: tuple[Action, ...], change: Change) -> None:
    found = model(Machine(program, rules=ALIKE).trace)
    assert predict(found, change) == pytest.approx(Machine(program, change, ALIKE).mean_step(), abs=1e-3)


def recorded(program: tuple[Action, ...]) -> Model:
    return model(Machine(program, rules=ALIKE).trace)


def one_longer(graph: Graph, what: str, place: float, factor: float) -> Changes:
    """One segment, item or edge that belongs to the steps takes `factor` of its time."""
    begin = graph.facts.steps.host.start[0]
    none = unchanged(graph)
    column = {"segment": none.segments, "item": none.items, "edge": none.fixed}[what]
    moment = {
        "segment": graph.segments.start,
        "item": graph.facts.work.launched,
        "edge": graph.nodes.time[graph.edges.source],
    }[what]
    later = np.flatnonzero(moment >= begin)
    assume(len(later))
    scaled = column.copy()
    scaled[later[int(place * (len(later) - 1))]] = factor
    changed: dict[str, Any] = {{"segment": "segments", "item": "items", "edge": "fixed"}[what]: scaled}
    return replace(none, **changed)


@settings(max_examples=50)
@given(programs, asked, st.sampled_from(["segment", "item", "edge"]), st.floats(0, 1), st.floats(1, 5))
def test_nothing_that_takes_longer_shortens_the_step(
    program: tuple[Action, ...], change: Change, what: str, place: float, factor: float
) -> None:
    found = recorded(program)
    longer = one_longer(found.graph, what, place, factor)
    before = changes(found.graph, change)
    assert step_of(found, both(before, longer)) >= step_of(found, before) - 1e-6
    assert (times_of(found, both(before, longer)) >= times_of(found, before) - 1e-6).all()


@settings(max_examples=50)
@given(programs, asked)
def test_no_step_is_shorter_than_what_one_thread_or_stream_does_in_it(
    program: tuple[Action, ...], change: Change
) -> None:
    found = recorded(program)
    graph, asks = found.graph, changes(found.graph, change)
    begin, end = graph.facts.steps.host.start[0], graph.facts.steps.host.end[-1]
    total = step_of(found, asks) * len(graph.facts.steps.numbers)
    pieces = graph.segments
    for thread in np.unique(pieces.thread):
        mine = (pieces.thread == thread) & (pieces.start >= begin) & (pieces.start < end)
        assert total >= (pieces.ns * asks.segments)[mine].sum() - 1e-6
    work = graph.facts.work
    for stream in STREAMS:
        own = (work.stream == stream) & (work.launched >= begin)  # the device is at rest when the steps begin
        assert total >= (graph.durations * asks.items)[own].sum() - 1e-6


@settings(max_examples=50)
@given(programs, asked, st.floats(0, 1))
def test_no_factor_gains_more_than_the_ceiling(program: tuple[Action, ...], change: Change, factor: float) -> None:
    found = recorded(program)

    def scaled(by: float) -> Change:
        return Change(
            *(dict.fromkeys(names, by) for names in (change.ops, change.kernels, change.causes)),
        )

    ceiling, some, none = (predict(found, scaled(by)) for by in (0.0, factor, 1.0))
    assert ceiling - 1e-6 <= some <= none + 1e-6
    assert none == pytest.approx(found.base_ns, abs=1e-6)


@settings(max_examples=50)
@given(programs, asked, asked)
def test_the_order_of_changes_does_not_matter(program: tuple[Action, ...], one: Change, other: Change) -> None:
    found = recorded(program)
    a, b = (changes(found.graph, change) for change in (one, other))
    assert step_of(found, both(a, b)) == step_of(found, both(b, a))
    assert step_of(found, both(a, unchanged(found.graph))) == step_of(found, a)


serial_parts = st.lists(st.tuples(st.sampled_from(["gemm", "add"]), lengths, lengths), min_size=1, max_size=6)


@settings(max_examples=50)
@given(serial_parts, st.sampled_from(["gemm", "add"]), factors)
def test_on_a_serial_trace_a_kernel_gains_what_it_takes(
    parts: list[tuple[str, int, int]], name: str, factor: float
) -> None:
    body = tuple(action for kernel, ns, rest in parts for action in (Launch(kernel, ns), Synchronize(), Busy(rest)))
    found = recorded(steps(body, body, before=AT_REST))
    changed = step_of(found, change_items(found.graph, found.graph.facts.work.name == name, factor))
    spent = sum(ns for kernel, ns, _ in parts if kernel == name)
    assert changed == pytest.approx(found.base_ns + (factor - 1) * spent, abs=1e-3)


# Between two launches the device is idle for longer than any pause that stream order explains.
BODY: tuple[Action, ...] = (Busy(9000), *[Op("aten::mm", (Busy(9000), Launch("gemm", 2000)))] * 10)
HOST_BOUND = steps(*[BODY] * 4, before=AT_REST)


@settings(max_examples=50)
@given(st.floats(0.3, 1), st.randoms(use_true_random=False), st.sampled_from(["kernel", "runtime"]))
def test_a_trace_that_lost_events_is_withheld(share: float, random: Random, kind: str) -> None:
    rows = Machine(HOST_BOUND, rules=ALIKE).rows
    begin = min(row["start"] for row in rows if row["name"].startswith(MARK_PREFIX))
    lost = [place for place, row in enumerate(rows) if row["kind"] == kind and row["start"] >= begin]
    gone = set(random.sample(lost, round(share * len(lost))))
    found = model(Trace.from_rows(row for place, row in enumerate(rows) if place not in gone))
    assert found.withheld
