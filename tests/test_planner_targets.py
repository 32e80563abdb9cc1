import math
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.estimate import Basis, Estimate, ceiling
from qrprof.planner.replay.model import Model, model_of
from qrprof.planner.targets import Target, rank
from qrprof.profiler.coverage import coverage
from qrprof.profiler.devices import Peaks
from qrprof.profiler.facts import find_facts
from qrprof.profiler.noise import Noise
from qrprof.profiler.partition import Partition, divide
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.trace import Trace

RUN = RunInfo.model_validate_json("""{
    "schema_number": 1, "id": "r", "created": "", "command": [], "cwd": "/", "step_source": "optimizer SGD", "rank": 0,
    "world_size": 1, "versions": {}, "devices": [], "threads": 2, "period": 1, "kinds": [], "unprofiled": [],
    "recorded": [], "linalg": [], "repeats": [], "notes": [], "trace": "", "exit_code": 0
}""")
GPU = Peaks(
    schema_number=1,
    kind="cuda",
    name="GPU",
    uuid="",
    torch="2.13.0",
    threads=2,
    measured_at="2026-01-31T12:00:00+00:00",
    flops={"float": 1e13},
    copy_bytes_per_s=1e12,
    launch_ns=5000.0,
    repeats=7,
    spread={},
)
COVERAGE = coverage(Trace.from_rows([{"kind": "op", "name": "aten::mm", "start": 0, "end": 1}]))
CPU = GPU.model_copy(update={"kind": "cpu"})

SUM = ("aten::sum", "[[10000000]]", "float")  # 4e7 bytes: 80 us at half of the peak
TEXTS = ("op", "shapes", "dtypes", "phase", "where", "kernel")
ROW: dict[str, Any] = {**dict.fromkeys(TEXTS, ""), "kind": "op", "launches": 1.0, "overlap": False}


def op(key: str, ns: float, shapes: str = "", dtypes: str = "", **more: Any) -> dict[str, Any]:
    return {**ROW, "key": key, "op": key, "shapes": shapes, "dtypes": dtypes, "ns": ns, **more}


def gap(key: str, ns: float, blamed: str = "") -> dict[str, Any]:
    return {**ROW, "key": key, "kind": "gap", "op": blamed, "kernel": "", "ns": ns}


def calls_of(rows: list[dict[str, Any]], count: float) -> pd.DataFrame:
    columns = ["key", "shapes", "dtypes", "phase", "where"]
    frame = pd.DataFrame([row for row in rows if row["kind"] == "op"], columns=columns)
    return frame.drop_duplicates().assign(calls=count)


def divided(*rows: dict[str, Any], calls: float = 1.0, **more: Any) -> Partition:
    frame = pd.DataFrame([{**row, "recorded_ns": row["ns"]} for row in rows])
    total = float(frame["ns"].sum())
    counts = calls_of(list(rows), calls)
    return replace(Partition(frame, counts, total, total, 0.0, 1.0, True, COVERAGE, None), **more)


def by_key(targets: list[Target]) -> dict[str, Target]:
    return {target.key: target for target in targets}


def test_an_op_s_gain_is_its_time_less_what_its_work_needs() -> None:
    target = by_key(rank(divided(op(SUM[0], 400e3, *SUM[1:]), gap("gap:host", 600e3), calls=2), RUN, GPU, None))[SUM[0]]
    assert (target.kind, target.calls, target.ns, target.share) == ("op", 2, 400e3, 0.4)
    assert target.ceiling_x == pytest.approx(1 / 0.6)
    assert target.achievable_ns is not None
    assert target.achievable_ns.basis is Basis.ROOFLINE
    assert target.achievable_ns.high == pytest.approx(160e3)
    assert target.gain_ns is not None
    assert target.gain_ns.low == pytest.approx(240e3)
    assert target.gain_ns.mid == pytest.approx(400e3 - 80e3 / 0.75)
    assert target.gain_ns.high == pytest.approx(400e3 - 80e3 / 0.95)


def test_kernels_of_one_call_are_one_part() -> None:
    rows = [op(SUM[0], 100e3, *SUM[1:], kernel=kernel, overlap=kernel == "b") for kernel in "ab"]
    target = rank(divided(*rows), RUN, GPU, None)[0]
    assert target.calls == 1
    assert target.overlap
    assert target.gain_ns is not None
    assert target.gain_ns.low == pytest.approx(120e3)


def test_nothing_is_gained_where_an_op_is_faster_than_the_estimate() -> None:
    target = rank(divided(op(SUM[0], 10e3, *SUM[1:])), RUN, GPU, None)[0]
    assert target.achievable_ns == Estimate(10e3, 10e3, 10e3, Basis.ROOFLINE)
    assert target.gain_ns == Estimate(0, 0, 0, Basis.ROOFLINE)


@pytest.mark.parametrize("peaks", [None, CPU])
def test_without_peaks_of_the_device_an_op_has_its_ceiling(peaks: Peaks | None) -> None:
    target = rank(divided(op(SUM[0], 400e3, *SUM[1:])), RUN, peaks, None)[0]
    assert target.gain_ns == Estimate(0, None, 400e3, Basis.CEILING)
    assert target.ceiling_x == math.inf


@pytest.mark.parametrize(("unknown", "basis"), [(99e3, Basis.ROOFLINE), (101e3, Basis.CEILING)])
def test_the_basis_is_the_weakest_of_a_fifth_of_the_time(unknown: float, basis: Basis) -> None:
    known = op(SUM[0], 500e3 - unknown, *SUM[1:])
    target = rank(divided(known, op(SUM[0], unknown)), RUN, GPU, None)[0]
    assert target.gain_ns is not None
    assert target.gain_ns.basis is basis
    assert target.gain_ns.low == pytest.approx(500e3 - unknown - 80e3)
    assert target.gain_ns.high == pytest.approx(500e3 - 40e3 / 0.95)
    expected = 500e3 - unknown - 40e3 / 0.75 if basis is Basis.ROOFLINE else None
    assert target.gain_ns.mid == (None if expected is None else pytest.approx(expected))


def test_copies_over_the_bus_are_not_judged_by_the_device_s_memory() -> None:
    row = op(
        "aten::copy_", 400e3, "[[1000],[1000],[]]", "float,float,Scalar", kernel="Memcpy HtoD (Pageable -> Device)"
    )
    target = rank(divided(row), RUN, GPU, None)[0]
    assert target.gain_ns == Estimate(0, None, 400e3, Basis.CEILING)
    assert "pinned" in target.advice


@pytest.mark.parametrize(
    ("kernel", "needed", "advised"),
    [("sm80_xmma_gemm_f32f32_f32f32_f32_nn", 200e3, True), ("cutlass_80_tensorop_s1688gemm_64x64", 25e3, False)],
)
def test_tf32_is_seen_in_the_kernel_s_name(kernel: str, needed: float, advised: bool) -> None:
    peaks = GPU.model_copy(update={"flops": {"float": 1e13, "tf32": 8e13}})
    row = op("aten::mm", 500e3, "[[1000,1000],[1000,1000]]", "float,float", kernel=kernel)
    target = rank(divided(row), RUN, peaks, None)[0]
    assert target.achievable_ns is not None
    assert target.achievable_ns.mid == pytest.approx(needed / 0.8)
    assert ("TF32" in target.advice) is advised


def test_a_pause_is_told_with_its_own_time() -> None:
    rows = (gap("gap:host", 3e6, "a pause between a and b"), gap("gap:host", 2e6), op("x::op", 1e6))
    host = by_key(rank(divided(*rows, on_device=False), RUN, None, None))["gap:host"]
    assert host.advice == "Profile your own Python between a and b, such as loading or logging."
    assert "takes 5.00 ms of a step of 6.00 ms (83.3 %), 3.00 ms of it in a pause between a and b," in host.why


@pytest.mark.parametrize("key", ["gap:sync", "gap:copy", "gap:alloc", "gap:launch", "gap:host"])
def test_a_gap_has_its_ceiling(key: str) -> None:
    target = by_key(rank(divided(gap(key, 30.0), op("x::op", 70.0)), RUN, GPU, None))[key]
    assert target.kind == "gap"
    assert target.gain_ns == Estimate(0, None, 30, Basis.CEILING)


@pytest.mark.parametrize(
    ("waited", "rest", "low", "mid"),
    [
        (40, 60, 40, 40),  # one worker hides all of it
        (60, 40, 40, 60),  # one leaves 60 - 40, four 15 - 40: none
        (90, 10, 10, 77.5),  # one leaves 90 - 10, four 22.5 - 10
        (100, 0, 0, 75),
    ],
)
def test_loading_hides_behind_the_rest_of_the_step(waited: float, rest: float, low: float, mid: float) -> None:
    blamed = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    target = by_key(rank(divided(gap("gap:data", waited, blamed), op("x::op", rest)), RUN, GPU, None))["gap:data"]
    assert target.gain_ns == Estimate(low, mid, waited, Basis.CEILING)


def test_workers_that_do_not_keep_up_take_a_step_for_a_batch() -> None:
    blamed = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    rows = (gap("gap:data", 90, blamed), op("x::op", 10))
    target = by_key(rank(divided(*rows), RUN, GPU, None))["gap:data"]
    assert target.gain_ns == Estimate(0, 75, 90, Basis.CEILING)  # 100 / 4 - 10 would be left
    assert "num_workers" in target.advice


def test_the_order_is_by_expected_gain_and_the_cheaper_fix_on_ties() -> None:
    rows = (gap("gap:sync", 600e3), op("x::b", 600e3), op("x::a", 600e3), op(*SUM[:1], 400e3, *SUM[1:]))
    # expected: 300 us each of the bare ceilings, 400 - 53 us of the sum
    assert [target.key for target in rank(divided(*rows), RUN, GPU, None)] == ["aten::sum", "gap:sync", "x::a", "x::b"]


def test_gains_below_twice_the_noise_are_not_worth_it() -> None:
    rows = (gap("gap:sync", 39e6), gap("gap:host", 41e6), op("x::op", 920e6))
    targets = by_key(rank(divided(*rows), RUN, GPU, Noise("run-to-run", 0.02)))
    assert targets["gap:host"].dont_bother is None
    reason = targets["gap:sync"].dont_bother
    assert reason == "at most 39.0 ms of a step of 1.00 s, under twice its run-to-run noise of 20.0 ms"


def test_unknown_noise_condemns_nothing() -> None:
    assert all(
        target.dont_bother is None for target in rank(divided(gap("gap:sync", 1), op("x::op", 1e9)), RUN, GPU, None)
    )


def test_a_withheld_partition_has_times_but_no_shares() -> None:
    rows = (op("x::small", 10.0), gap("gap:sync", 90.0))
    targets = rank(divided(*rows, step_ns=500.0, withheld="a reason"), RUN, GPU, Noise("within-run", 0.5))
    assert [(target.key, target.ns) for target in targets] == [("gap:sync", 90), ("x::small", 10)]
    for target in targets:
        figures = (target.share, target.ceiling_x, target.achievable_ns, target.gain_ns, target.dont_bother)
        assert figures == (None,) * 5
        assert "%" not in target.why


def test_without_an_unprofiled_step_shares_are_of_the_recorded_one() -> None:
    targets = rank(divided(gap("gap:sync", 25.0), op("x::op", 75.0), step_ns=None), RUN, GPU, None)
    assert {target.key: target.share for target in targets} == {"gap:sync": 0.25, "x::op": 0.75}


def test_nothing_recorded_is_no_target() -> None:
    frame = divided(op("x::op", 1.0)).rows.iloc[:0]
    empty = Partition(frame, calls_of([], 0), None, 0.0, 0.0, None, False, COVERAGE, None)
    assert rank(empty, RUN, None, None) == []


# --- with a replay


@pytest.fixture
def two_streams(build: Any) -> tuple[Partition, Model]:
    """A step of 915 us: a copy of 900 us from 15 on; beside it mm, from 35 to 435, and add, from 436 to 437."""
    rows = [
        build.mark(0, 0),
        build.op("aten::copy_", 1, 20),
        build.call("cudaMemcpyAsync", 5, 10, 1),
        build.op("aten::mm", 20, 40, shapes="[[512,512],[512,512]]", dtypes="float,float"),
        build.launch(2, 25, 30),
        build.op("aten::add", 40, 50),
        build.launch(3, 42, 45),
        build.mark(1, 100),
        build.copy("Memcpy HtoD", 15, 915, 1, stream=8),
        build.kernel("gemm", 35, 435, 2),
        build.kernel("elementwise", 436, 437, 3),
    ]
    trace = Trace.from_rows([row | {"start": 1000 * row["start"], "end": 1000 * row["end"]} for row in rows])
    facts = find_facts(trace)
    return divide(facts, RUN), model_of(facts, RUN)


def test_what_another_stream_hides_gains_nothing_by_replay(two_streams: tuple[Partition, Model]) -> None:
    """While both work each gets half of the time. Without the copy the step ends with add, without mm as before."""
    parts, model = two_streams
    assert parts.recorded_ns == 915e3
    hidden, copy = (by_key(rank(parts, RUN, None, None, model))[key] for key in ("aten::mm", "aten::copy_"))
    assert (hidden.ns, hidden.by_share_ns, hidden.gain_ns) == (200e3, ceiling(200e3), ceiling(0.0))
    assert hidden.ceiling_x == 1
    assert (copy.ns, copy.by_share_ns) == (699.5e3, ceiling(699.5e3))
    assert copy.gain_ns is not None
    assert copy.gain_ns.high == pytest.approx(915e3 - 437e3)
    assert copy.ceiling_x == pytest.approx(915 / 437)
    alone = by_key(rank(parts, RUN, None, None))["aten::mm"]
    assert (alone.gain_ns, alone.by_share_ns) == (ceiling(200e3), ceiling(200e3))


def test_a_row_under_a_five_hundredth_of_the_step_is_not_replayed(two_streams: tuple[Partition, Model]) -> None:
    parts, model = two_streams
    small = by_key(rank(parts, RUN, None, None, model))["aten::add"]
    assert (small.ns, small.gain_ns) == (500, ceiling(500.0))  # the copy hides it too


def test_a_withheld_replay_leaves_bare_ceilings(two_streams: tuple[Partition, Model]) -> None:
    parts, model = two_streams
    known = by_key(rank(parts, RUN, GPU, None, model))["aten::mm"]
    assert known.gain_ns is not None
    assert known.gain_ns.basis is Basis.ROOFLINE
    for target in rank(parts, RUN, GPU, None, replace(model, withheld="a reason")):
        assert target.gain_ns == target.by_share_ns == target.achievable_ns == ceiling(target.ns)


# --- of any rows


OPS = st.sampled_from(
    [SUM, ("aten::mm", "[[512,512],[512,512]]", "float,float"), ("aten::linalg_qr", "[[64,64],[]]", "float,")]
)
TIMES = st.floats(min_value=0, max_value=1e12)
OP_ROWS = st.builds(lambda found, ns, known: op(found[0], ns, *(found[1:] if known else ())), OPS, TIMES, st.booleans())
GAP_ROWS = st.builds(gap, st.sampled_from(["gap:data", "gap:sync", "gap:host"]), TIMES)


@given(st.lists(OP_ROWS | GAP_ROWS, min_size=1), st.floats(min_value=0.1, max_value=1e4), st.booleans())
def test_shares_sum_to_one_and_gains_stay_inside(rows: list[dict[str, Any]], calls: float, measured: bool) -> None:
    rows = [*rows, op("x::rest", 1e6)]
    targets = rank(divided(*rows, calls=calls), RUN, GPU if measured else None, None)
    assert {target.key for target in targets} == {row["key"] for row in rows}
    assert sum(target.share or 0 for target in targets) == pytest.approx(1)
    for target in targets:
        assert target.gain_ns is not None
        mid = target.gain_ns.low if target.gain_ns.mid is None else target.gain_ns.mid
        assert 0 <= target.gain_ns.low <= mid <= target.gain_ns.high <= target.ns
        assert target.ceiling_x is not None
        assert target.ceiling_x >= 1
