"""The ranks of recorded traces: known answers."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from qrprof.profiler.ranks import ranks
from qrprof.profiler.read import ranked, read_all
from qrprof.profiler.trace import Trace

PUBLIC = Path(os.environ.get("QRPROF_TRACES", Path(__file__).parents[1] / ".." / "shared" / "traces"))


def public(name: str) -> dict[int, Trace]:
    if not (PUBLIC / name).is_file():
        pytest.skip(f"no {name} in {PUBLIC} (QRPROF_TRACES)")
    return {rank: source.trace for rank, source in ranked(read_all([PUBLIC / name]))}


def moved(trace: Trace, ns: int) -> Trace:
    events = trace.events
    return replace(trace, events=events.assign(start=events["start"] + ns, end=events["end"] + ns))


def test_dlrm_on_eight_ranks_waits_for_rank_7() -> None:
    """Its first SendRecv takes rank 7 10 us and rank 1, which waits for it, 7.6 ms. The trace counts whole us."""
    found = ranks(public("param_v100_dlrm_8ranks.tar.gz"))
    assert [times.rank for times in found.times] == list(range(8))
    table = found.collectives.table()
    assert table["members"].tolist() == [8] * 8
    assert found.collectives.left_out == 0
    assert (table.loc[0, "latency_ns"], table.loc[0, "skew_ns"], table.loc[0, "last_rank"]) == (10_000, 7_624_000, 7)
    first = found.collectives.members.query("collective == @table.collective[0]").set_index("rank")
    assert first.loc[1, "wait_ns"] == 7_635_000 - 10_000
    assert found.collectives.clock.name == "recorded"
    assert found.collectives.clock.contradicted == 0
    assert (found.collectives.clock.off_ns or 0) < 10_000
    assert found.straggler is not None
    assert found.straggler.rank == 7
    assert found.straggler.caused_ns / (found.wait_ns or 0) == pytest.approx(0.76, abs=0.01)
    assert found.straggler.came_last == 5


def test_dlrm_is_lined_up_by_its_all_reduces_alone() -> None:
    """The same without what the ranks' clocks have in common."""
    traces = public("param_v100_dlrm_8ranks.tar.gz")
    zeros = {rank: int(trace.events["start"].min()) for rank, trace in traces.items()}
    found = ranks({rank: moved(trace, -zeros[rank]) for rank, trace in traces.items()})
    assert (found.collectives.clock.name, found.collectives.clock.checked) == ("aligned", 3)
    assert found.straggler is not None
    assert found.straggler.rank == 7


def test_nsys_exports_of_two_processes_are_two_ranks() -> None:
    found = ranks(public("nsys_h100x2_mfu_after.sqlite"))
    assert [times.rank for times in found.times] == [0, 1]
    table = found.collectives.table()
    assert len(table) == 31
    assert table["last_rank"].value_counts().to_dict() == {0: 15, 1: 16}
    assert found.straggler is None  # rank 0 causes most of the waiting, but who comes last is a toss of a coin
    assert "15 of 31" in found.why
