"""Idle intervals of a device: where they are, and what each is blamed on."""

from typing import Any

import pytest

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.facts import find_facts
from qrprof.profiler.gaps import THRESHOLD_NS, Gap, Idle, by_cause, find_idle, gaps
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.trace import Trace

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
US = 1000

Rows = list[dict[str, Any]]


def in_us(*rows: dict[str, Any]) -> Trace:
    """A trace whose rows are given in us."""
    return Trace.from_rows(row | {"start": US * row["start"], "end": US * row["end"]} for row in rows)


def idle_of(trace: Trace, run: RunInfo | None = None) -> Idle:
    return find_idle(find_facts(trace, run), run)


def spans(found: list[Gap]) -> list[tuple[float, float]]:
    return [(gap.start / US, gap.end / US) for gap in found]


def test_a_step_with_two_gaps(build: Any) -> None:
    trace = in_us(
        build.mark(4, 0),
        build.op("aten::mm", 10, 40),
        build.launch(1, 30, 32),
        build.call("cudaStreamSynchronize", 42, 90),
        build.op("aten::relu", 50, 95, thread=2),
        build.mark(5, 100),
        build.kernel("gemm", 40, 60, 1),
        build.kernel("relu", 62, 70, 9),
    )
    first, last = gaps(trace)
    assert spans([first, last]) == [(0, 40), (70, 100)]  # 2 us are no gap
    assert (first.cause, first.op, first.event, first.thread) == ("launch", "aten::mm", "aten::mm", 1)
    assert (first.device, first.step, first.weight) == (0, 4, 1.0)
    assert first.share == pytest.approx(0.4)
    assert (first.before, first.after, first.phase) == ("", "gemm", "forward")
    assert (last.cause, last.op, last.event) == ("sync", "cudaStreamSynchronize", "cudaStreamSynchronize")
    assert (last.before, last.after) == ("relu", "")
    (device,) = idle_of(trace).devices
    assert (device.busy_ns, device.gap_ns, device.short_ns) == (28 * US, 70 * US, 2 * US)


@pytest.mark.parametrize(("length", "found"), [(THRESHOLD_NS, 0), (THRESHOLD_NS + 1, 1)])
def test_a_gap_is_longer_than_the_threshold(build: Any, length: int, found: int) -> None:
    rows = [build.op("aten::mm", 0, 90), build.launch(1, 0, 1), build.launch(2, 80, 82)]
    kernels = [build.kernel("a", 0, 100, 1), build.kernel("b", 100 + length, 200 + length, 2)]
    assert len(gaps(Trace.from_rows([*rows, *kernels]))) == found


# --- causes


def starved(build: Any, *host: dict[str, Any]) -> Gap:
    """The gap from 20 to 60 us before a kernel that is launched at 55, with the given host rows."""
    trace = in_us(
        build.mark(0, 0),
        build.op("aten::mm", 0, 10),
        build.launch(1, 2, 4),
        build.launch(2, 55, 57),
        build.mark(1, 100),
        build.kernel("gemm", 5, 20, 1),
        build.kernel("next", 60, 100, 2),
        *(build.launch(n, 4, 5) for n in range(10, 20)),  # beside them one copy without work is a tenth at most
        *(build.kernel("beside", 6, 18, n, stream=n) for n in range(10, 20)),
        *host,
    )
    (gap,) = [gap for gap in gaps(trace) if gap.after == "next"]
    assert spans([gap]) == [(20, 60)]
    return gap


def overhead(name: str, start: int, end: int) -> dict[str, Any]:
    return {"kind": "overhead", "name": name, "start": start, "end": end, "track": -1}


def test_each_cause(build: Any) -> None:
    rows: dict[str, Rows] = {
        "data": [build.note(LOADER, 15, 50), build.op("aten::stack", 20, 40)],
        "sync": [build.call("cudaDeviceSynchronize", 12, 50)],
        "copy": [build.call("cudaMemcpyAsync", 22, 50)],
        "alloc": [build.op("aten::empty", 20, 52), build.call("cudaMalloc", 21, 51)],
        "launch": [build.op("aten::add", 20, 58)],
        "host": [build.note("augment", 15, 54)],
        "communication": [build.op("c10d::barrier", 15, 54), build.call("cudaStreamSynchronize", 16, 53)],
        "profiler": [build.call("cudaStreamSynchronize", 12, 50), overhead("Buffer Flush", 22, 55)],
    }
    found = {cause: starved(build, *given) for cause, given in rows.items()}
    assert {cause: gap.cause for cause, gap in found.items()} == {cause: cause for cause in rows}
    blamed = {cause: (gap.op, gap.event, gap.thread) for cause, gap in found.items()}
    assert blamed == {
        "data": (LOADER, "aten::stack", 1),
        "sync": ("cudaDeviceSynchronize", "cudaDeviceSynchronize", 1),
        "copy": ("cudaMemcpyAsync", "cudaMemcpyAsync", 1),
        "alloc": ("aten::empty", "cudaMalloc", 1),
        "launch": ("aten::add", "aten::add", 1),
        "host": ("augment", "augment", 1),
        "communication": ("c10d::barrier", "cudaStreamSynchronize", 1),
        "profiler": ("", "Buffer Flush", None),
    }
    assert found["host"].where == "augment"
    assert found["data"].phase == "loader"


def test_the_cause_is_that_of_most_of_a_gap(build: Any) -> None:
    gap = starved(build, build.call("cudaMalloc", 20, 35), build.op("aten::add", 35, 55))
    assert (gap.cause, gap.op) == ("launch", "aten::add")
    gap = starved(build, build.call("cudaMalloc", 20, 41), build.op("aten::add", 41, 50))
    assert (gap.cause, gap.op) == ("alloc", "cudaMalloc")


def test_the_host_waits_for_a_collective_that_another_thread_carries_out(build: Any) -> None:
    gap = starved(build, build.note("gloo:all_reduce", 15, 50, thread=9))
    assert (gap.cause, gap.event, gap.thread) == ("communication", "gloo:all_reduce", 9)
    busy = starved(build, build.note("gloo:all_reduce", 15, 50, thread=9), build.op("aten::add", 20, 54))
    assert (busy.cause, busy.event) == ("launch", "aten::add")


def test_launching_a_collective_is_no_waiting_for_it(build: Any) -> None:
    rows = [build.note("nccl:all_reduce", 20, 58), build.op("c10d::allreduce_", 20, 58)]
    assert starved(build, *rows).cause == "launch"


@pytest.mark.parametrize(
    ("collective", "stream", "cause"),
    [("ncclDevKernel_AllReduce", 9, "communication"), ("ncclDevKernel_AllReduce", 7, "launch"), ("gemm", 9, "launch")],
)
def test_a_stream_waits_for_a_collective_on_another(build: Any, collective: str, stream: int, cause: str) -> None:
    """The next work is queued before the gap begins, so that its stream is what waits."""
    trace = in_us(
        build.op("c10d::allreduce_", 0, 4),
        build.launch(1, 1, 3),
        build.op("aten::mm", 5, 9),
        build.launch(2, 6, 8),
        build.kernel(collective, 4, 50, 1, stream=stream),
        build.kernel("gemm", 55, 60, 2),
    )
    gap = gaps(trace)[-1]
    assert (spans([gap]), gap.cause) == ([(50, 55)], cause)
    assert gap.op == ("c10d::allreduce_" if cause == "communication" else "aten::mm")


def test_a_full_queue_of_launches_is_not_the_profilers_doing(build: Any) -> None:
    rows = [build.op("aten::add", 20, 58), overhead("Command Buffer Full", 20, 58)]
    assert starved(build, *rows).cause == "launch"


def test_overheads_inside_one_another_are_one_stretch(build: Any) -> None:
    rows = [overhead("Buffer Flush", 20, 45), overhead("Lazy Function Loading", 25, 30)]
    gap = starved(build, build.op("aten::add", 20, 58), *rows)
    assert (gap.cause, gap.event) == ("profiler", "Buffer Flush")


def test_what_the_host_did_is_unknown_where_the_file_does_not_say(build: Any) -> None:
    alone = in_us(build.kernel("a", 0, 10), build.kernel("b", 20, 30))
    (gap,) = gaps(alone)
    assert (gap.cause, gap.op, gap.event, gap.thread, gap.where, gap.phase) == ("unknown", "", "", None, "", "")
    calls = in_us(
        build.launch(1, 0, 2), build.launch(2, 14, 16), build.kernel("a", 2, 4, 1), build.kernel("b", 17, 20, 2)
    )
    assert [gap.cause for gap in gaps(calls)] == ["unknown"]
    late = in_us(
        build.op("aten::mm", 0, 5), build.launch(1, 1, 3), build.kernel("a", 3, 10, 1), build.kernel("b", 20, 30)
    )
    assert [(gap.cause, gap.step) for gap in gaps(late)] == [("unknown", 0)]


def test_one_graph_launch_is_blamed_for_the_pauses_of_its_replay(build: Any) -> None:
    trace = in_us(
        build.op("aten::mm", 0, 8),
        build.call("cudaGraphLaunch", 1, 6, 5),
        *(build.kernel("k", start, start + 10, 5) for start in (6, 20, 40)),
    )
    assert spans(gaps(trace)) == [(0, 6), (16, 20), (30, 40)]
    assert {(gap.cause, gap.event) for gap in gaps(trace)} == {("launch", "cudaGraphLaunch")}


# --- streams and devices


def test_idle_streams_of_a_busy_device_are_no_gap(build: Any) -> None:
    trace = in_us(
        build.op("aten::mm", 0, 20),
        build.launch(1, 1, 3),
        build.launch(2, 4, 6),
        build.kernel("a", 0, 60, 1, stream=7),
        build.kernel("b", 40, 100, 2, stream=0),
    )
    assert gaps(trace) == []


def test_early_starts_of_programmatic_launches_are_no_negative_gap(build: Any) -> None:
    launches = [build.call("cudaLaunchKernelExC", n, n + 1, n) for n in (1, 2, 3)]
    kernels = [build.kernel("a", 10, 60, 1), build.kernel("b", 50, 55, 2), build.kernel("c", 52, 80, 3)]
    trace = in_us(build.op("aten::mm", 0, 100), *launches, *kernels)
    assert spans(gaps(trace)) == [(0, 10), (80, 100)]


def test_each_device_has_its_own_gaps(build: Any) -> None:
    trace = in_us(
        build.mark(0, 0),
        build.op("aten::mm", 0, 30),
        build.launch(1, 1, 3),
        build.launch(2, 20, 22),
        build.mark(1, 100),
        build.kernel("a", 0, 50, 1),
        build.kernel("b", 50, 100, 2) | {"device": 3},  # the stream has the same number
    )
    idle = idle_of(trace)
    assert [(gap.device, *spans([gap])) for gap in idle.gaps or []] == [(0, (50, 100)), (3, (0, 50))]
    assert [(found.device, found.busy_ns, found.gap_ns) for found in idle.devices] == [
        (0, 50 * US, 50 * US),
        (3, 50 * US, 50 * US),
    ]
    assert by_cause(idle)[["device", "gaps"]].to_numpy().tolist() == [[0, 1.0], [3, 1.0]]


# --- steps and shares


def weighted(build: Any) -> Trace:
    """Steps 7 and 8 of 100 us with a gap of 40 and 20 us."""
    rows = [build.mark(7, 0), build.mark(8, 100), build.mark(9, 200), build.op("aten::mm", 0, 200)]
    rows += [build.launch(1, 1, 2), build.launch(2, 101, 102)]
    return in_us(*rows, build.kernel("a", 40, 100, 1), build.kernel("b", 120, 200, 2))


def test_gaps_lie_in_steps_that_may_weigh_differently(build: Any) -> None:
    trace = weighted(build)
    equal = gaps(trace)
    assert [(gap.step, gap.ns, gap.weight, gap.share) for gap in equal] == [
        (7, 40_000, 0.5, 0.4),
        (8, 20_000, 0.5, 0.2),
    ]
    run = build.run(weights={7: 0.9, 8: 0.1})
    assert [gap.weight for gap in gaps(trace, run)] == pytest.approx([0.9, 0.1])
    sums = by_cause(idle_of(trace, run)).to_dict("records")
    assert [(row["gaps"], row["recorded_ns"], row["ns"], row["share"]) for row in sums] == [
        (pytest.approx(1), pytest.approx(38_000), pytest.approx(38_000), pytest.approx(0.38))
    ]


def test_shares_are_of_the_unprofiled_step(build: Any) -> None:
    """70 of 100 us are busy, so that an unprofiled step of 85 us leaves 15 of the 30 idle ones.

    Both gaps begin with a mark and a call of 1 us, which keep 0.3 each. The op's 18 us in the second one keep 5.4, so
    that of the 30 us that the two steps lose 14.6 come from its 38 us in the first.
    """
    idle = idle_of(weighted(build), build.run([85_000]))
    assert (idle.recorded_ns, idle.step_ns) == (100_000, 85_000)
    assert idle.factor == pytest.approx(0.5)
    assert [gap.share for gap in idle.gaps or []] == pytest.approx([24 / 85, 6 / 85])
    (cause,) = by_cause(idle).to_dict("records")
    assert (cause["recorded_ns"], cause["ns"], cause["share"]) == pytest.approx((30_000, 15_000, 15 / 85))


def test_shares_are_withheld_where_the_factor_cannot_be_believed(build: Any) -> None:
    idle = idle_of(weighted(build), build.run([50_000]))
    assert "more than the whole unprofiled step" in (idle.withheld or "")
    assert [(gap.ns, gap.share) for gap in idle.gaps or []] == [(40_000, None), (20_000, None)]
    assert by_cause(idle)["share"].isna().all()


def test_a_trace_without_device_work_has_no_gaps_and_says_why(build: Any) -> None:
    trace = in_us(build.op("aten::mm", 0, 100))
    assert gaps(trace) == []
    assert (idle_of(trace).gaps, idle_of(trace).withheld) == (None, "no device work in the steps")
    assert by_cause(idle_of(trace)).empty


def test_an_empty_trace_says_so() -> None:
    with pytest.raises(QrprofError, match="holds no time"):
        gaps(Trace.from_rows([]))


@pytest.mark.parametrize("step", [90, 101])  # us: idle time takes the factor 0.75; within 2 % all time takes 1.01
def test_busy_and_idle_time_of_each_device_sum_to_the_step(build: Any, step: int) -> None:
    trace = in_us(
        build.mark(0, 0),
        build.launch(1, 0, 5),
        build.launch(2, 30, 35),
        build.mark(1, 100),
        build.kernel("a", 0, 30, 1),
        build.kernel("b", 40, 70, 2) | {"device": 1},
    )
    idle = idle_of(trace, build.run([step * US]))
    busy = 30 * US * (1.01 if step == 101 else 1.0)
    assert idle.factor == pytest.approx(1.01 if step == 101 else 0.75)
    sums = by_cause(idle).groupby("device")[["ns", "share"]].sum()
    assert sums["ns"].tolist() == pytest.approx([step * US - busy] * 2)
    assert sums["share"].tolist() == pytest.approx([1 - busy / (step * US)] * 2)
