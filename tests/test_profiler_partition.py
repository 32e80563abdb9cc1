"""Where the step goes: every ns of hand-made traces, and what holds for any trace."""

from typing import Any

import pytest

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
NODE = "autograd::engine::evaluate_function: MmBackward0"
QR = {"shapes": "[[64,64],[]]", "dtypes": "float,"}


def test_one_stream(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.op("aten::mm", 5, 20, shapes="[[2,2],[2,2]]", dtypes="float,float"),
        build.launch(1, 10, 15),
        build.mark(1, 100),
        build.kernel("gemm", 30, 60, 1),
    ]
    parts = build.divide(rows, build.run())
    assert parts.on_device
    assert (parts.recorded_ns, parts.busy_ns) == (100, 30)
    assert build.recorded(parts) == {("aten::mm", "aten::mm"): 30, ("gap:launch", "aten::mm"): 15, ("gap:host", ""): 55}
    busy = parts.rows[parts.rows["kind"] == "op"].iloc[0]
    assert (busy["kernel"], busy["launches"], busy["phase"], busy["overlap"]) == ("gemm", 1, "forward", False)
    assert (busy["shapes"], busy["dtypes"]) == ("[[2,2],[2,2]]", "float,float")
    assert parts.calls.to_dict("records") == [
        {
            "key": "aten::mm",
            "shapes": "[[2,2],[2,2]]",
            "dtypes": "float,float",
            "phase": "forward",
            "where": "",
            "calls": 1,
        }
    ]


def two_streams(build: Any) -> list[dict[str, Any]]:
    return [
        build.mark(0, 0),
        build.op("aten::copy_", 1, 5),
        build.call("cudaMemcpyAsync", 2, 4, 1),
        build.op("aten::mm", 5, 15),
        build.launch(2, 6, 8),
        build.launch(3, 10, 12),
        build.mark(1, 100),
        build.copy("Memcpy HtoD", 20, 60, 1, stream=8),
        build.kernel("gemm", 40, 80, 2),
        build.kernel("splitK", 80, 95, 3),
    ]


def test_streams_that_run_together_share_the_time_evenly(build: Any) -> None:
    parts = build.divide(two_streams(build), build.run())
    assert build.recorded(parts, "kernel")["Memcpy HtoD"] == 20 + 10
    assert build.recorded(parts, "kernel")["gemm"] == 10 + 20
    assert build.recorded(parts, "kernel")["splitK"] == 15
    assert parts.busy_ns == 75
    overlap = parts.rows.set_index("kernel")["overlap"]
    assert overlap[["Memcpy HtoD", "gemm", "splitK"]].tolist() == [True, True, False]
    assert build.calls(parts) == {"aten::copy_": 1, "aten::mm": 1, "gap:copy": 1}


def test_kernels_that_overlap_on_one_stream_count_once(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.op("aten::mm", 0, 20),
        build.call("cudaLaunchKernelExC", 1, 2, 1),
        build.call("cudaLaunchKernelExC", 3, 4, 2),
        build.call("cudaLaunchKernelExC", 5, 6, 3),
        build.mark(1, 100),
        build.kernel("first", 20, 60, 1),
        build.kernel("early", 50, 80, 2),
        build.kernel("inside", 70, 75, 3),
    ]
    parts = build.divide(rows, build.run())
    assert build.recorded(parts, "kernel") == {"first": 40, "early": 20, "": 40}
    assert parts.busy_ns == 60
    assert not parts.rows["overlap"].any()
    assert parts.rows.set_index("kernel")["launches"]["inside"] == 1


def test_the_innermost_op_owns_a_kernel_and_a_linalg_driver_owns_all_inside_it(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.op("aten::linear", 0, 20),
        build.op("aten::addmm", 2, 18),
        build.launch(1, 5, 6),
        build.op("aten::linalg_qr", 20, 60, **QR),
        build.op("aten::copy_", 22, 30),
        build.launch(2, 24, 26),
        build.op("aten::linalg_solve_triangular", 30, 50),
        build.op("aten::triu", 32, 40),
        build.launch(3, 34, 36),
        build.mark(1, 100),
        build.kernel("gemm", 60, 70, 1),
        build.kernel("copy", 70, 75, 2),
        build.kernel("triu", 75, 95, 3),
    ]
    parts = build.divide(rows, build.run())
    assert build.recorded(parts, "key", "kernel") == {
        ("aten::addmm", "gemm"): 10,
        ("aten::linalg_qr", "copy"): 5,
        ("aten::linalg_qr", "triu"): 20,
        ("gap:launch", ""): 60,
        ("gap:host", ""): 5,
    }
    assert build.calls(parts) == {"aten::addmm": 1, "aten::linalg_qr": 1}
    driver = parts.rows[parts.rows["key"] == "aten::linalg_qr"]
    assert set(driver["shapes"]) == {"[[64,64],[]]"}
    assert build.recorded(parts)["gap:launch", "aten::linalg_qr"] == 40


def test_a_kernel_launched_directly_by_an_autograd_wrapper_keeps_its_name(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.op(NODE, 0, 50, thread=2),
        build.op("MmBackward0", 5, 45, thread=2),
        build.launch(1, 10, 12, thread=2),
        build.op("aten::mm", 20, 40, thread=2),
        build.launch(2, 22, 24, thread=2),
        build.mark(1, 100),
        build.kernel("direct", 50, 60, 1),
        build.kernel("gemm", 60, 90, 2),
    ]
    assert build.recorded(build.divide(rows, build.run()), "key", "kernel") == {
        ("MmBackward0", "direct"): 10,
        ("aten::mm", "gemm"): 30,
        ("gap:launch", ""): 50,
        ("gap:host", ""): 10,
    }


def test_one_graph_launch_owns_many_kernels_and_is_one_call(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.call("cudaGraphLaunch", 2, 8, 5),
        build.mark(1, 60),
        *(build.kernel("k", start, start + 10, 5) for start in (20, 32, 44)),
    ]
    parts = build.divide(rows, build.run())
    busy = parts.rows[parts.rows["kind"] == "op"].iloc[0]
    assert (busy["key"], busy["recorded_ns"], busy["launches"]) == ("cudaGraphLaunch", 30, 3)
    assert build.calls(parts) == {"cudaGraphLaunch": 1}


def test_a_kernel_without_a_launch_is_unattributed(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.op("aten::mm", 0, 10),
        build.launch(1, 2, 4),
        build.launch(2, 5, 6),
        build.mark(1, 100),
        build.kernel("gemm", 10, 40, 1),
        build.kernel("lost", 40, 60, 99),
    ]
    parts = build.divide(rows, build.run())
    assert build.recorded(parts, "key") == {"aten::mm": 30, "unattributed": 20, "gap:launch": 10, "gap:host": 40}
    lost = parts.rows[parts.rows["key"] == "unattributed"].iloc[0]
    assert (lost["kernel"], lost["phase"], lost["kind"], lost["launches"]) == ("lost", "", "op", 1)
    assert "unattributed" not in build.calls(parts)


def test_a_host_that_runs_ahead(build: Any) -> None:
    """The steps of the device come long after those of the host; their idle time is that of the instant."""
    rows = [build.launch(1, 0, 5)]
    for step in range(3):
        begin = 10 + 20 * step
        rows += [build.mark(step, begin), build.op("aten::mm", begin + 2, begin + 12)]
        rows += [build.launch(10 + step, begin + 4, begin + 8)]
    rows += [
        build.call("cudaDeviceSynchronize", 80, 1000),
        build.kernel("lead-in", 10, 300, 1),
        build.kernel("k0", 300, 400, 10),
        build.kernel("k1", 420, 500, 11),
        build.kernel("k2", 500, 600, 12),
    ]
    parts = build.divide(rows, build.run())
    assert parts.recorded_ns == 100  # device windows [300, 400] and [400, 500]
    assert parts.busy_ns == 90
    # The next kernel was in the queue, so the pause before it is not the sync's doing.
    assert build.recorded(parts, "key", "op", "kernel") == {
        ("aten::mm", "aten::mm", "k0"): 50,
        ("aten::mm", "aten::mm", "k1"): 40,
        ("gap:launch", "aten::mm", ""): 10,
    }
    assert build.calls(parts) == {"aten::mm": 1}


def test_work_of_the_step_before_is_left_out(build: Any) -> None:
    rows = [
        build.op("aten::add", 0, 9),
        build.launch(1, 2, 4),
        build.mark(0, 10),
        build.op("aten::mm", 12, 20),
        build.launch(2, 14, 16),
        build.mark(1, 30),
        build.kernel("launched earlier", 5, 50, 0),
        build.kernel("of the step before", 50, 80, 1),
        build.kernel("gemm", 80, 180, 2),
    ]
    parts = build.divide(rows, build.run())
    assert build.recorded(parts, "kernel") == {"gemm": 100}
    assert parts.recorded_ns == 100
    assert build.calls(parts) == {"aten::mm": 1}


def test_weights_of_step_kinds(build: Any) -> None:
    rows = [
        build.mark(7, 0),
        build.op("aten::mm", 0, 10),
        build.launch(1, 2, 4),
        build.mark(8, 100),
        build.op("aten::linalg_qr", 100, 120),
        build.launch(2, 102, 104),
        build.mark(9, 300),
        build.kernel("gemm", 10, 100, 1),
        build.kernel("geqr2", 120, 300, 2),
    ]
    parts = build.divide(rows, build.run(weights={7: 0.9, 8: 0.1}))
    assert parts.recorded_ns == pytest.approx(0.9 * 100 + 0.1 * 200)
    assert build.recorded(parts) == {
        ("aten::mm", "aten::mm"): pytest.approx(81),
        ("aten::linalg_qr", "aten::linalg_qr"): pytest.approx(18),
        ("gap:launch", "aten::mm"): pytest.approx(9),
        ("gap:launch", "aten::linalg_qr"): pytest.approx(2),
    }
    assert build.calls(parts) == {"aten::mm": pytest.approx(0.9), "aten::linalg_qr": pytest.approx(0.1)}
    launches = parts.rows[parts.rows["kind"] == "op"].set_index("key")["launches"].to_dict()
    assert launches == {"aten::mm": pytest.approx(0.9), "aten::linalg_qr": pytest.approx(0.1)}


def test_phases(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.op("aten::mm", 0, 10),
        build.launch(1, 1, 2),
        build.op(NODE, 20, 30, thread=2),
        build.op("aten::mm", 21, 29, thread=2),
        build.launch(2, 22, 23, thread=2),
        build.note("Optimizer.step#AdamW.step", 40, 60),
        build.op("aten::mm", 42, 50),
        build.launch(3, 44, 46),
        build.note(LOADER, 70, 80),
        build.op("aten::mm", 72, 78),
        build.launch(4, 74, 76),
        build.mark(1, 100),
        *(build.kernel("gemm", 10 * n, 10 * n + 5, n) for n in range(1, 5)),
    ]
    parts = build.divide(rows, build.run())
    busy = parts.rows[parts.rows["key"] == "aten::mm"]
    assert dict(zip(busy["phase"], busy["recorded_ns"], strict=True)) == {
        "forward": 5,
        "backward": 5,
        "optimizer": 5,
        "loader": 5,
    }
    assert len(parts.calls[parts.calls["key"] == "aten::mm"]) == 4


def test_call_sites_of_linalg_drivers(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.note("refresh", 0, 80),
        build.op("aten::linalg_qr", 0, 10, **QR),
        build.op("aten::linalg_qr", 10, 30, shapes="[[8,8],[]]", dtypes="float,"),
        build.op("aten::linalg_inv", 30, 60, shapes="[[8,8]]", dtypes="float"),
        build.op("aten::linalg_qr", 60, 70, shapes="[[3,3],[]]", dtypes="float,"),
        build.op("aten::mm", 70, 80, **QR),
        build.mark(1, 80),
    ]
    linalg = [
        build.linalg("aten::linalg_qr", (64, 64), "a.py:1"),
        build.linalg("aten::linalg_qr", (64, 64), "a.py:2"),
        *(build.linalg("aten::linalg_qr", (8, 8), f"b.py:{line}") for line in (1, 2, 3)),
        build.linalg("aten::linalg_inv_ex", (8, 8), "c.py:1"),
    ]
    assert build.recorded(build.divide(rows, build.run(linalg=linalg)), "key", "where") == {
        ("aten::linalg_qr", "a.py:1, a.py:2"): 10,
        ("aten::linalg_qr", "3 sites"): 20,
        ("aten::linalg_inv", "c.py:1"): 30,
        ("aten::linalg_qr", "refresh"): 10,
        ("aten::mm", "refresh"): 10,
    }


def test_idle_time_of_a_trace_of_the_device_alone_is_unknown(build: Any) -> None:
    parts = build.divide([build.kernel("a", 0, 10_000), build.kernel("b", 50_000, 60_000)], build.run())
    assert build.recorded(parts, "key") == {"unattributed": 20_000, "gap:unknown": 40_000}


def test_between_calls_without_any_ops_the_host_is_unknown(build: Any) -> None:
    rows = [build.launch(1, 0, 10), build.launch(2, 60, 70), build.kernel("a", 10, 20, 1), build.kernel("b", 80, 90, 2)]
    parts = build.divide(rows, build.run())
    assert build.recorded(parts, "key") == {"cudaLaunchKernel": 20, "gap:launch": 20, "gap:unknown": 50}
