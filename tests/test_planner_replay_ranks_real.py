"""Recorded ranks replayed together: known answers."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qrprof.planner.replay.changes import Changes, change_rows, unchanged
from qrprof.planner.replay.graph import Graph
from qrprof.planner.replay.ranks import Joint, Replay, joint_of, replay
from qrprof.profiler.facts import find_facts
from qrprof.profiler.ranks import ranks
from qrprof.profiler.read import ranked, read_all
from qrprof.profiler.trace import Trace

PUBLIC = Path(os.environ.get("QRPROF_TRACES", Path(__file__).parents[1] / ".." / "shared" / "traces"))
US = 1000


def together(traces: dict[int, Trace]) -> Joint:
    return joint_of({rank: find_facts(trace) for rank, trace in traces.items()})


def steps_of(found: Replay) -> dict[int, float]:
    return {rank: one.step_ns for rank, one in found.ranks.items()}


def public(name: str) -> dict[int, Trace]:
    if not (PUBLIC / name).is_file():
        pytest.skip(f"no {name} in {PUBLIC} (QRPROF_TRACES)")
    return {rank: source.trace for rank, source in ranked(read_all([PUBLIC / name]))}


def slower_or_faster(graph: Graph, factor: float) -> Changes:
    """All that a rank does itself: its host and its device, but not its communication."""
    rows = np.ones(len(graph.facts.host.start), dtype=bool)
    everything = change_rows(graph, rows, factor)
    return replace(everything, segments=np.full(len(graph.segments.row), factor))


def test_dlrm_on_eight_ranks_gains_by_its_straggler_alone() -> None:
    """The first collective could begin 505 us earlier if rank 7 came with the next to last, ranks 6 and 2."""
    traces = public("param_v100_dlrm_8ranks.tar.gz")
    found = together(traces)
    base = replay(found, {})
    compared = ranks(traces)
    assert (found.withheld, found.left_out, found.meetings.count) == (None, 0, 8)
    assert found.meetings.off_ns == 1000  # the trace counts whole us
    waited = {one.rank: one.wait_ns for one in compared.arrivals}
    assert {rank: one.wait_ns for rank, one in base.ranks.items()} == pytest.approx(waited, abs=8 * 2000)
    assert compared.straggler is not None
    early = compared.collectives.table()["early_ns"].iloc[0]
    assert (compared.straggler.rank, early) == (7, 505_000)
    for rank, model in found.models.items():
        assert model.error == pytest.approx(0, abs=1e-12)
        for factor in (0.8, 0.5):
            new = replay(found, {rank: slower_or_faster(model.graph, factor)})
            gains = {other: ns - steps_of(new)[other] for other, ns in steps_of(base).items() if other != rank}
            gain = (base.step_ns or 0) - (new.step_ns or 0)
            if rank == 7:
                assert gain == pytest.approx(early, rel=1e-6)
                assert sorted(round(ns) for ns in gains.values()) == [0, 0, *[early] * 5]
            else:
                assert max(gains.values()) < 1
                assert gain < 0.004 * (base.step_ns or 0)


def test_dlrm_gains_what_the_straggler_comes_earlier() -> None:
    """Ranks 2 and 6 are next to last: they no longer wait for rank 7, and their hosts bound what follows."""
    found = together(public("param_v100_dlrm_8ranks.tar.gz"))
    base, graph = replay(found, {}), found.models[7].graph
    first = graph.facts.work.launched[found.meetings.item[found.meetings.rank == 7]].min()
    before = (graph.segments.start < first) & (graph.segments.start >= graph.facts.steps.host.start[0])
    for earlier, gain in ((100 * US, 100 * US), (400 * US, 400 * US), (800 * US, 505 * US)):
        share = 1 - earlier / graph.segments.ns[before].sum()
        new = replay(found, {7: replace(unchanged(graph), segments=np.where(before, share, 1.0))})
        assert (base.step_ns or 0) - (new.step_ns or 0) == pytest.approx(gain, rel=1e-3)
        for rank, ns in steps_of(base).items():
            if rank != 7:
                assert ns - steps_of(new)[rank] == pytest.approx(0 if rank in (2, 6) else gain, rel=1e-3)


def test_nsys_exports_of_two_processes_wait_for_each_other() -> None:
    """Both come last as often as not: where both are faster it gains more than either alone."""
    traces = public("nsys_h100x2_mfu_after.sqlite")
    found = together(traces)
    base = replay(found, {})
    assert (found.withheld, found.meetings.count) == (None, 31)

    def gain(*asked: int) -> float:
        changes = {rank: slower_or_faster(found.models[rank].graph, 0.9) for rank in asked}
        return (base.step_ns or 0) - (replay(found, changes).step_ns or 0)

    assert gain(0, 1) > 2 * gain(0) > gain(1) > 0
    assert gain(0, 1) == pytest.approx(0.1 * (base.step_ns or 0), rel=0.2)
