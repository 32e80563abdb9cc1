"""Launches: their calls, delays and queues, and what a CUDA graph would save."""

from typing import Any

import pytest

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.launches import Launches, launches, per_step
from qrprof.profiler.trace import Trace

US = 1000


def of(*rows: dict[str, Any], run: Any = None) -> Launches:
    """The launches of rows given in us."""
    scaled: list[dict[str, Any]] = [row | {"start": US * row["start"], "end": US * row["end"]} for row in rows]
    return launches(Trace.from_rows(scaled), run)


def columns(found: Launches, *names: str) -> list[Any]:
    """Rows of the table of calls; one column alone as a list."""
    return found.calls[names[0]].tolist() if len(names) == 1 else found.calls[list(names)].to_numpy().tolist()


def test_a_launch_in_full(build: Any) -> None:
    found = of(
        build.mark(3, 0),
        build.note("model", 1, 50),
        build.op("aten::linear", 2, 20),
        build.op("aten::addmm", 3, 18),
        build.launch(1, 10, 15),
        build.mark(4, 100),
        build.kernel("gemm", 17, 30, 1),
    )
    (row,) = found.calls.to_dict("records")
    assert row == {
        "step": 3,
        "weight": 1.0,
        "start": 10 * US,
        "thread": 1,
        "call": "cudaLaunchKernel",
        "op": "aten::addmm",
        "phase": "forward",
        "where": "model",
        "what": "gemm",
        "device": 0,
        "stream": 7,
        "api_ns": 5 * US,
        "delay_ns": 7 * US,
        "queue_full": False,
        "depth": 0,
        "items": 1,
        "work_ns": 13 * US,
        "short": 0,
        "short_ns": 0,
    }


def test_the_queue_is_full_where_earlier_work_still_ran_when_the_call_returned(build: Any) -> None:
    found = of(
        build.op("aten::mm", 0, 90),
        build.launch(1, 0, 5),
        build.launch(2, 10, 15),  # returns while `first` runs
        build.launch(3, 40, 45),  # `second` has ended at 43
        build.launch(4, 60, 65),
        build.kernel("first", 8, 20, 1),
        build.kernel("second", 21, 43, 2),
        build.kernel("third", 47, 50, 3),
        build.kernel("on another stream", 62, 70, 4, stream=8),
    )
    assert columns(found, "queue_full", "delay_ns") == [
        [False, 8 * US],
        [True, 11 * US],
        [False, 7 * US],
        [False, 2 * US],
    ]
    (sums,) = per_step(found.calls, "op").to_dict("records")
    assert (sums["full"], sums["full_ns"], sums["empty"], sums["empty_ns"]) == (1, 11 * US, 3, 17 * US)


def test_a_copy_that_blocks_its_caller_waits_in_a_full_queue(build: Any) -> None:
    """It returns when all is done, so that nothing runs any more: what counts is when it began."""
    rows = [build.op("aten::item", 0, 90), build.launch(1, 0, 5), build.kernel("k", 8, 50, 1)]
    waits = of(*rows, build.call("cudaMemcpy", 10, 60, 2), build.copy("DtoH", 52, 55, 2))
    assert columns(waits, "queue_full") == [False, True]
    prompt = of(*rows, build.call("cudaMemcpy", 55, 65, 2), build.copy("DtoH", 58, 60, 2))
    assert columns(prompt, "queue_full") == [False, False]


def test_depth_is_what_waits_on_the_stream(build: Any) -> None:
    found = of(
        build.op("aten::mm", 0, 90),
        *(build.launch(n, 10 * n, 10 * n + 2) for n in range(1, 6)),
        build.kernel("busy since before", 0, 35, 0),
        build.kernel("waits unseen", 36, 38, 99),  # its launch is not in the file: it was queued before the first
        build.kernel("a", 38, 41, 1),
        build.kernel("b", 41, 45, 2),
        build.kernel("other", 31, 80, 3, stream=8),
        build.kernel("c", 46, 47, 4),
        build.kernel("d", 60, 61, 5),
    )
    assert columns(found, "depth") == [1, 2, 0, 1, 0]
    assert columns(found, "stream") == [7, 7, 8, 7, 7]


def test_a_graph_launch_is_charged_once(build: Any) -> None:
    kernels = [build.kernel("k", start, start + 4, 5, stream=7 + start % 2) for start in (20, 25, 30)]
    found = of(
        build.op("aten::mm", 0, 90),
        build.call("cudaGraphLaunch", 2, 12, 5),
        build.launch(6, 13, 15),
        *kernels,
        build.kernel("last", 40, 60, 6),
    )
    graph, single = found.calls.to_dict("records")
    assert (graph["what"], graph["items"], graph["api_ns"]) == ("cudaGraphLaunch of 3 items", 3, 10 * US)
    assert (graph["delay_ns"], graph["work_ns"], graph["short"]) == (18 * US, 12 * US, 3)
    assert single["depth"] == 1
    sums = {row["what"]: row for row in per_step(found.calls, "what").to_dict("records")}
    assert sums["cudaGraphLaunch of 3 items"]["launches"] == 1
    assert sum(row["launches"] for row in sums.values()) == 2


@pytest.mark.parametrize("name", ["hipExtLaunchKernel", "INVALID", "aNewLaunchingCall"])
def test_a_launch_is_what_owns_device_work_whatever_its_name(build: Any, name: str) -> None:
    rows = [build.call("cudaGetDevice", 1, 2, 7), build.call(name, 2, 5, 1)]
    found = of(*rows, build.kernel("k", 10, 20, 1, stream=0), build.op("aten::mm", 0, 8))
    assert columns(found, "call", "stream") == [[name, 0]]


def test_runtime_and_driver_calls_of_one_correlation_are_one_launch(build: Any) -> None:
    rows = [build.call("cudaLaunchKernel", 0, 9, 1), build.call("cuLaunchKernel", 2, 7, 1)]
    assert columns(of(*rows, build.kernel("k", 10, 20, 1)), "call", "api_ns") == [["cudaLaunchKernel", 9 * US]]


def test_work_that_starts_early(build: Any) -> None:
    """Before its launch where the clocks disagree, before its predecessor ends where a launch is programmatic."""
    rows = [build.call("cudaLaunchKernelExC", 10, 12, 1), build.call("cudaLaunchKernelExC", 14, 16, 2)]
    found = of(*rows, build.kernel("early", 8, 30, 1), build.kernel("programmatic", 25, 40, 2), build.op("x", 0, 20))
    assert columns(found, "delay_ns", "queue_full", "depth") == [[0, False, 0], [11 * US, True, 0]]
    assert found.coverage.inversions == 1


def test_only_launches_in_the_steps_count_and_by_their_weight(build: Any) -> None:
    rows = [build.mark(n, 100 * n) for n in range(3)]
    for n, at in enumerate((10, 110, 120, 210), start=1):
        rows += [build.op("aten::mm", at, at + 8), build.launch(n, at, at + 2), build.kernel("k", at + 4, at + 9, n)]
    found = of(*rows, build.kernel("orphan", 150, 160, 99), run=build.run(weights={0: 0.9, 1: 0.1}))
    assert columns(found, "step") == [0, 1, 1]
    (sums,) = per_step(found.calls, "what").to_dict("records")
    assert (sums["launches"], sums["items"], sums["api_ns"]) == pytest.approx((1.1, 1.1, 2200))
    assert (sums["short"], sums["short_ns"]) == pytest.approx((1.1, 5500))
    assert found.coverage.in_steps.work_without_launch == 1


def test_kernels_under_10_us(build: Any) -> None:
    rows = [build.op("aten::mm", 0, 90), *(build.launch(n, n, n + 1) for n in (1, 2, 3))]
    works = [build.kernel("k", 10, 19, 1), build.kernel("k", 20, 30, 2), build.copy("Memcpy", 30, 31, 3)]
    found = of(*rows, *works)
    assert columns(found, "short", "short_ns") == [[1, 9 * US], [0, 0], [0, 0]]


# --- what a graph would save


def test_the_saving_is_launch_bound_idle_time_and_empty_queues(build: Any) -> None:
    """
    From 20 to 60 the device waits: for the op until 30, for the host's own work until 40, for the next launch until 44,
    which is in no op, and 16 us for the work to arrive. The loader's wait from 70 to 90 is no graph's to save.
    """
    rows = [
        build.mark(0, 0),
        build.op("aten::mm", 0, 8),
        build.launch(1, 1, 3),
        build.op("aten::add", 18, 30),
        build.launch(2, 40, 44),
        build.note("enumerate(DataLoader)#x.__next__", 65, 92),
        build.launch(3, 93, 94),
        build.mark(1, 100),
        build.kernel("a", 1, 20, 1),
        build.kernel("b", 60, 70, 2),
        build.kernel("c", 95, 100, 3),
    ]
    found = of(*rows).graph
    assert found is not None
    # Before `a` 1 us of an op, before `b` 10 us of an op and 4 of a call, before `c` 1 us of a call: but for 3 us each.
    assert found.low_ns == 11 * US
    # All of that, the host's work (10 and 1) and the way to the device (16 and 1).
    assert found.high_ns == (1 + 14 + 1 + 11 + 17) * US


def test_a_host_that_is_ahead_gains_nothing_from_a_graph(build: Any) -> None:
    rows = [build.op("aten::mm", 0, 8), build.launch(1, 0, 2), build.launch(2, 4, 6), build.kernel("a", 0, 20, 1)]
    found = of(*rows, build.kernel("b", 25, 60, 2)).graph
    assert found is not None
    assert (found.low_ns, found.high_ns) == (0, 0)


def test_what_a_graph_launches_already_is_not_saved_again(build: Any) -> None:
    rows = [build.op("aten::mm", 0, 30), build.call("cudaGraphLaunch", 10, 20, 1)]
    found = of(*rows, build.kernel("a", 30, 35, 1), build.kernel("b", 45, 50, 1)).graph
    assert found is not None
    assert (found.low_ns, found.high_ns) == (0, 0)


def test_launch_bound_time_after_the_last_work_counts_too(build: Any) -> None:
    rows = [build.mark(0, 0), build.op("aten::mm", 0, 8), build.launch(1, 0, 2), build.op("aten::view", 30, 90)]
    found = of(*rows, build.mark(1, 100), build.kernel("a", 0, 20, 1)).graph
    assert found is not None
    assert (found.low_ns, found.high_ns) == (57 * US, 60 * US)


def test_the_saving_is_calibrated(build: Any) -> None:
    rows = [build.mark(0, 0), build.op("aten::mm", 0, 40), build.launch(1, 36, 40), build.mark(1, 100)]
    rows.append(build.kernel("a", 40, 100, 1))
    recorded, calibrated = of(*rows).graph, of(*rows, run=build.run([80_000])).graph
    assert recorded is not None
    assert calibrated is not None
    assert [recorded.low_ns, recorded.high_ns] == pytest.approx([37_000, 40_000])
    assert [calibrated.low_ns, calibrated.high_ns] == pytest.approx([17_000, 20_000])
    withheld = of(*rows, run=build.run([30_000]))
    assert withheld.graph is None
    assert "more than the whole unprofiled step" in (withheld.withheld or "")
    assert len(withheld.calls) == 1


def test_without_launches_there_is_nothing_to_save(build: Any) -> None:
    for rows in ([build.op("aten::mm", 0, 10)], [build.kernel("k", 0, 10)]):
        found = of(*rows)
        assert (found.graph, found.withheld) == (None, "no launches of device work in the steps")
        assert found.calls.empty
        assert per_step(found.calls, "op").empty


def test_an_empty_trace_says_so() -> None:
    with pytest.raises(QrprofError, match="holds no time"):
        of()
