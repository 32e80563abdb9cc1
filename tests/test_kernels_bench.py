"""The QR benchmark: its cases, its peers, what fails, and its record. Times come as they come; none is asserted."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from qrprof.kernels import bench as bench_module
from qrprof.kernels import qr
from qrprof.kernels.bench import OURS, Result, Setup, bench, floor_ns, one_thread, room
from qrprof.kernels.bench_cases import Case
from qrprof.kernels.bench_report import case_record, geometric_means, report, sums
from qrprof.kernels.checks import Reason, Verdict
from qrprof.kernels.qr import lanes
from qrprof.kernels.timing import MOST_CALLS, HostClock, Measured, Timing
from qrprof.profiler.devices import Peaks

CPU = torch.device("cpu")
TINY = Case(batch=3, m=8, n=8, seed=5)


def setup(*peers: str) -> Setup:
    return Setup(CPU, peers or ("torch", "cpu"), 0.0, HostClock(), HostClock())


def measured(device_ms: float, call_ms: float = 1.0) -> Measured:
    def taken(ms: float) -> Timing:
        return Timing(n=9, calls=1, median_ns=1e6 * ms, p05_ns=9e5 * ms, p95_ns=11e5 * ms, clock="c", how="h")

    return Measured(first_ns=5e6, peak_bytes=None, call=taken(call_ms), device=taken(device_ms))


def result(ours: float | None, **peers: float | str) -> Result:
    times = {name: ms if isinstance(ms, str) else measured(ms, 2 * ms) for name, ms in peers.items()}
    return Result(TINY, "torch", None, None, ours=None if ours is None else measured(ours), peers=times)


# --- a case


@pytest.mark.parametrize("case", [TINY, Case(batch=4, m=12, n=5), Case(batch=1, m=5, n=12, case="mixed", cond=2)])
def test_a_case_has_times_of_all_and_a_verdict(case: Case) -> None:
    found = bench(case, setup())
    assert found.right, found
    assert found.ours is not None
    assert found.flops_per_s == pytest.approx(1e9 * case.flops / found.ours.device.median_ns)
    assert set(found.peers) == {"torch", "cpu"}
    for times in (found.ours, *found.peers.values()):
        assert isinstance(times, Measured)
        assert times.device.n >= 2
        assert times.call.n >= 2
    assert found.check is not None
    assert found.check.own.batch == (case.batch,)


class StillClock(HostClock):
    """No time passes between calls: as many go into a reading as may."""

    def now(self) -> int:
        return 0


def test_the_calls_of_a_reading_have_inputs_of_their_own_the_same_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def watched(a: Tensor) -> object:
        seen.append(a)
        return torch.geqrf(a)

    monkeypatch.setattr(qr, "geqrf", watched)
    found = bench(TINY, Setup(CPU, (), -1.0, StillClock(), StillClock()))
    assert found.ours is not None
    assert found.ours.device.calls == MOST_CALLS
    last = seen[-MOST_CALLS:]
    assert len({a.data_ptr() for a in last}) == MOST_CALLS
    assert all(torch.equal(a, TINY.make(CPU, fresh)) for fresh, a in enumerate(last))
    checked = [a for a in seen if not any(a is one for one in last)]
    assert len(checked) == 1  # on an input that is not timed
    assert not any(torch.equal(checked[0], a) for a in last)


def test_ours_that_fails_is_a_row_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(a: Tensor) -> tuple[Tensor, Tensor]:
        raise ZeroDivisionError("no\nsecond line")

    monkeypatch.setattr(qr, "geqrf", broken)
    found = bench(TINY, setup())
    assert (found.failed, found.right, found.ours) == ("ZeroDivisionError: no", False, None)
    record = case_record(found)
    assert record["failed"] == "ZeroDivisionError: no"
    assert (record["device_ms"], record["strict"], record["peers"]) == (None, None, {})


def test_a_peer_that_fails_leaves_the_others_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(a: Tensor) -> object:
        raise torch.OutOfMemoryError("all gone")

    monkeypatch.setattr(bench_module, "one_thread", broken)
    found = bench(TINY, setup())
    assert found.right
    assert found.peers["cpu"] == "OutOfMemoryError: all gone"
    assert isinstance(found.peers["torch"], Measured)
    record = case_record(found)
    assert record["peers"]["cpu"] is None
    assert record["peers"]["torch"] > 0
    assert record["peers_failed"] == {"cpu": "OutOfMemoryError: all gone"}


@pytest.mark.parametrize("spoil", [lambda h: h * 1.01, lambda h: h.mT.contiguous(), lambda h: -h])
def test_a_wrong_result_is_not_right(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Tensor], Tensor]) -> None:
    def wrong(a: Tensor) -> tuple[Tensor, Tensor]:
        h, tau = torch.geqrf(a)
        return spoil(h), tau

    monkeypatch.setattr(qr, "geqrf", wrong)
    found = bench(TINY, setup())
    assert found.failed is None
    assert not found.right
    record = case_record(found)
    assert record["strict"]["passed"] is False
    assert record["strict"]["reasons"]
    assert record["same_bits"] is False
    assert record["device_ms"] is not None


def test_an_interrupt_is_no_failure_of_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(a: Tensor) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(qr, "geqrf", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench(TINY, setup())


def test_one_thread_gives_the_threads_back_also_when_it_raises() -> None:
    before = torch.get_num_threads()
    seen = one_thread(TINY.make(CPU))
    assert isinstance(seen, tuple)
    with pytest.raises(RuntimeError):
        one_thread(torch.ones(3))
    assert torch.get_num_threads() == before


# --- facts of a case


def test_the_lane_is_that_of_the_table_or_torch_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(batch=40, m=176, n=176)
    monkeypatch.setattr(lanes, "usable", lambda lane, device: True)
    assert bench_module.lane_here(case, CPU) == ("cpu-batched", None)
    assert bench_module.lane_here(case, torch.device("cuda")) == ("cuda-blocked", None)
    lanes.lane_of_shape.cache_clear()
    monkeypatch.setattr(lanes, "usable", lambda lane, device: lane == "torch")
    assert bench_module.lane_here(TINY, CPU) == ("torch", None)
    lane, why = bench_module.lane_here(case, CPU)
    assert lane == "torch"
    assert "cpu-batched" in str(why)
    lanes.lane_of_shape.cache_clear()


def peaks(**flops: float) -> Peaks:
    return Peaks(
        schema_number=1,
        kind="cuda",
        name="G",
        uuid="",
        torch="2",
        threads=1,
        measured_at="2026-01-01T00:00:00+00:00",
        flops=flops,
        copy_bytes_per_s=1e12,
        launch_ns=1.0,
        repeats=1,
        spread={},
    )


def test_the_floor_is_the_larger_of_flops_and_bytes() -> None:
    square, tall = Case(batch=1, m=300, n=300), Case(batch=100, m=1000, n=1)
    assert floor_ns(square, None) is None
    assert floor_ns(square, peaks(double=1.0)) is None
    assert floor_ns(square, peaks(float=1e9)) == pytest.approx(4 / 3 * 300**3)
    assert floor_ns(square, peaks(float=1e9, tf32=30e9)) == pytest.approx(4 / 3 * 300**3 / 10)
    assert floor_ns(tall, peaks(float=1e15)) == pytest.approx(1e9 * 2 * 4 * 100 * 1000 / 1e12)
    assert replace(result(2.0), floor_ns=1e6).floor_share == 0.5


def test_inputs_fit_into_memory_and_there_is_always_one() -> None:
    assert room(Case(batch=1, m=8192, n=8192), CPU) == 1
    assert room(Case(batch=1000, m=512, n=512), CPU) == 1
    assert room(TINY, CPU) > 50


# --- the record


def test_ratios_are_of_sums_over_the_cases_that_both_have() -> None:
    results = [result(1.0, torch=10.0), result(3.0, torch=6.0), result(5.0, torch="no memory"), result(None)]
    found = sums(results, "torch", "device")
    assert (found.cases, found.ours_ns, found.theirs_ns) == (2, 4e6, 16e6)
    assert found.ratio == 4
    assert sums(results, "torch", "call").ratio == 16
    assert sums(results, "cpu", "device").ratio is None


def test_geometric_means_are_over_the_cases_that_all_have() -> None:
    results = [result(1.0, torch=8.0, cpu=1.0), result(4.0, torch=2.0, cpu=1.0), result(9.0, torch=5.0)]
    count, means = geometric_means(results, [OURS, "torch", "cpu"], "device")
    assert count == 2
    assert means == pytest.approx({OURS: 2e6, "torch": 4e6, "cpu": 1e6})
    assert geometric_means([], [OURS], "device") == (0, {})


def full_report(results: list[Result], contest: bool = True) -> dict[str, Any]:
    return report(
        results,
        device="D",
        versions={"torch": "2"},
        cases="contest",
        wanted=2,
        peers=("torch",),
        contest=contest,
        notes=["n"],
    )


def test_the_record_of_a_run() -> None:
    real = bench(TINY, setup("torch"))
    found = full_report([real, result(2.0, torch=6.0)])
    assert json.loads(json.dumps(found, allow_nan=False))["cases"][0]["batch"] == TINY.batch
    assert {"device", "versions", "date", "cases"} <= set(found)
    first, second = found["cases"]
    assert {"batch", "n", "case", "device_ms", "call_ms", "p05_ms", "p95_ms", "peers"} <= set(first)
    assert second["peers"] == {"torch": 6.0}
    assert second["peers_call"] == {"torch": 12.0}
    assert (second["device_ms"], second["call_ms"], second["p05_ms"], second["p95_ms"]) == (2.0, 1.0, 1.8, 2.2)
    assert first["strict"] == {"passed": True, "reasons": []}
    assert set(first["residuals"]) == {"factor", "column", "orthogonality"}
    assert 0 <= first["residuals"]["column"]["at"][0] < TINY.batch
    assert first["timing"][OURS]["device"]["clock"] == "host clock"
    assert first["timing"][OURS]["device"]["how"].startswith("loop of calls")
    assert found["complete"] is True
    assert full_report([real])["complete"] is False


def test_a_geometric_mean_is_shown_for_the_contest_alone() -> None:
    results = [result(2.0, torch=6.0)]
    assert full_report(results)["summary"]["geometric_mean_device"] == {
        "cases": 1,
        "qrprof_ms": pytest.approx(2.0),
        "torch_ms": pytest.approx(6.0),
    }
    assert "geometric_mean_device" not in full_report(results, contest=False)["summary"]


def test_the_summary_counts_what_failed_and_what_is_wrong() -> None:
    real = bench(TINY, setup("torch"))
    assert real.check is not None
    wrong = replace(real, check=replace(real.check, contest=Verdict((Reason("factor", 1, 3),))))
    found = full_report([real, wrong, Result(TINY, "torch", None, None, failed="no")])["summary"]
    assert (found["cases"], found["failed"], found["wrong"]) == (3, 1, 1)
    assert found["peers"]["torch"]["device"]["cases"] == 2


# --- a GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_vendors_routine_over_streams_is_torchs() -> None:
    device = torch.device("cuda")
    a = Case(batch=20, m=33, n=33, seed=1).make(device)
    done = bench_module.multistream(device)(a)
    assert isinstance(done, tuple)
    h, tau = done
    stock_h, stock_tau = torch.geqrf(a)
    torch.testing.assert_close(h, stock_h, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(tau, stock_tau, rtol=1e-4, atol=1e-4)
    assert h.stride() == stock_h.stride()
