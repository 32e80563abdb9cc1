"""Idle time of the device: each ns has one cause, the first that holds."""

from typing import Any

import pytest

from qrprof.profiler.partition import Partition

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
NODE = "autograd::engine::evaluate_function: MmBackward0"


def idle(build: Any, *host: dict[str, Any]) -> Partition:
    """A step of 100 ns whose only kernel runs from 50 to 60, with the given host rows."""
    rows = [
        build.mark(0, 0),
        build.op("aten::relu", 48, 51),
        build.launch(1, 49, 50),
        build.mark(1, 100),
        build.kernel("k", 50, 60, 1),
        *host,
    ]
    parts: Partition = build.divide(rows, build.run())
    return parts


def gaps(build: Any, parts: Partition) -> dict[Any, float]:
    """What the given host rows account for."""
    return {name: ns for name, ns in build.recorded(parts).items() if "aten::relu" not in name}


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("cudaStreamSynchronize", "gap:sync"),
        ("cudaDeviceSynchronize", "gap:sync"),
        ("hipEventSynchronize", "gap:sync"),
        ("cudaMemcpyAsync", "gap:copy"),
        ("cudaMemcpy", "gap:copy"),
        ("hipMemcpyWithStream", "gap:copy"),
        ("cudaMalloc", "gap:alloc"),
        ("cudaFree", "gap:alloc"),
        ("cudaHostAlloc", "gap:alloc"),
        ("cudaMallocHost", "gap:alloc"),
        ("hipMalloc", "gap:alloc"),
        ("cuMemCreate", "gap:alloc"),
        ("cudaFuncGetAttributes", "gap:launch"),
        ("cudaStreamIsCapturing", "gap:launch"),
    ],
)
def test_a_runtime_call_is_a_cause_by_its_name(build: Any, name: str, key: str) -> None:
    assert gaps(build, idle(build, build.call(name, 10, 30))) == {(key, name): 20, ("gap:host", ""): 68}


def test_a_loader_wait_is_data(build: Any) -> None:
    parts = idle(
        build, build.note(LOADER, 10, 40), build.op("aten::stack", 15, 25), build.call("cudaHostAlloc", 20, 22)
    )
    assert gaps(build, parts) == {("gap:data", LOADER): 30, ("gap:host", ""): 58}
    assert build.calls(parts) == {"aten::relu": 1, "gap:data": 1}
    assert set(parts.rows[parts.rows["key"] == "gap:data"]["phase"]) == {"loader"}


def test_a_call_is_blamed_on_the_op_that_makes_it(build: Any) -> None:
    parts = idle(
        build,
        build.op("aten::_local_scalar_dense", 60, 95),
        build.call("cudaMemcpyAsync", 62, 70),
        build.call("cudaStreamSynchronize", 70, 90),
        build.op("aten::empty", 10, 40),
        build.call("cudaMalloc", 12, 38),
    )
    assert gaps(build, parts) == {
        ("gap:sync", "aten::_local_scalar_dense"): 20,
        ("gap:copy", "aten::_local_scalar_dense"): 8,
        ("gap:launch", "aten::_local_scalar_dense"): 7,
        ("gap:alloc", "aten::empty"): 26,
        ("gap:launch", "aten::empty"): 4,
        ("gap:host", ""): 23,
    }
    assert build.calls(parts) == {"aten::relu": 1, "gap:sync": 1, "gap:copy": 1, "gap:alloc": 1}


def test_a_call_inside_a_call_of_the_same_cause_is_one(build: Any) -> None:
    parts = idle(build, build.call("cudaMemcpy", 10, 30), build.call("cuMemcpyHtoD", 12, 28))
    assert build.calls(parts)["gap:copy"] == 1
    parts = idle(build, build.note(LOADER, 10, 30), build.call("cudaStreamSynchronize", 12, 28))
    assert "gap:sync" not in build.calls(parts)


def test_host_work_is_told_by_the_annotation_around_it(build: Any) -> None:
    parts = idle(
        build,
        build.note("ProfilerStep#3", 0, 100),
        build.note("augment", 10, 30),
        build.note("Optimizer.step#AdamW.step", 70, 90),
    )
    assert build.recorded(parts, "key", "op", "phase", "where") == {
        ("aten::relu", "aten::relu", "forward", ""): 10,
        ("gap:launch", "aten::relu", "forward", ""): 2,
        ("gap:host", "augment", "forward", "augment"): 20,
        ("gap:host", "Optimizer.step#AdamW.step", "optimizer", ""): 20,
        ("gap:host", "", "forward", ""): 48,
    }


def test_the_first_cause_in_order_wins_over_all_feeding_threads(build: Any) -> None:
    """Threads 2 to 6 launch work too; each holds one cause from its start to 40."""
    causes = [
        (2, build.op("aten::add", 5, 40, thread=2)),
        (3, build.call("cudaMalloc", 10, 40, thread=3)),
        (4, build.call("cudaMemcpyAsync", 15, 40, thread=4)),
        (5, build.call("cudaEventSynchronize", 20, 40, thread=5)),
        (6, build.note(LOADER, 25, 40, thread=6)),
    ]
    launches = [build.launch(thread, 50, 51, thread=thread) for thread, _ in causes]
    kernels = [build.kernel("k", 60, 61, thread) for thread, _ in causes]
    assert gaps(build, idle(build, *(row for _, row in causes), *launches, *kernels)) == {
        ("gap:launch", "aten::add"): 5,
        ("gap:alloc", "cudaMalloc"): 5,
        ("gap:copy", "cudaMemcpyAsync"): 5,
        ("gap:sync", "cudaEventSynchronize"): 5,
        ("gap:data", LOADER): 15,
        ("gap:host", ""): 13 + 39 - 5 + 5,
        ("cudaLaunchKernel", "cudaLaunchKernel"): 1,
    }


def test_threads_that_do_not_feed_the_device_are_asked_last(build: Any) -> None:
    pin = build.call("cudaHostAlloc", 10, 40, thread=9)
    assert gaps(build, idle(build, pin)) == {("gap:alloc", "cudaHostAlloc"): 30, ("gap:host", ""): 58}
    busy = build.op("aten::add", 20, 30)
    assert gaps(build, idle(build, pin, busy)) == {
        ("gap:alloc", "cudaHostAlloc"): 20,
        ("gap:launch", "aten::add"): 10,
        ("gap:host", ""): 58,
    }


def test_pauses_while_the_next_work_is_queued_belong_to_its_op(build: Any) -> None:
    """`.item()` waits for two queued kernels; the pause between them is not what dropping it would save."""
    rows = [
        build.mark(0, 0),
        build.op("aten::mm", 0, 10),
        build.launch(1, 2, 4),
        build.op("aten::relu", 10, 20),
        build.launch(2, 12, 14),
        build.call("cudaStreamSynchronize", 20, 90),
        build.op("aten::add", 90, 96),
        build.launch(3, 92, 94),
        build.mark(1, 100),
        build.kernel("gemm", 10, 40, 1),
        build.kernel("relu", 43, 80, 2),
        build.kernel("add", 98, 110, 3),
    ]
    parts = build.divide(rows, build.run())
    assert build.recorded(parts) == {
        ("aten::mm", "aten::mm"): 30,
        ("aten::relu", "aten::relu"): 37,
        ("aten::add", "aten::add"): 12,
        ("gap:launch", "aten::mm"): 10,
        ("gap:launch", "aten::relu"): 3,
        ("gap:sync", "cudaStreamSynchronize"): 10,
        ("gap:launch", "aten::add"): 6,
        ("gap:host", ""): 2,
    }


def test_the_pauses_of_the_backward_pass_are_backward(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.op("aten::mm", 0, 10),
        build.op(NODE, 20, 30, thread=2),
        build.op(NODE, 40, 50, thread=2),
        build.launch(1, 42, 44, thread=2),
        build.op("aten::add", 70, 80),
        build.mark(1, 100),
        build.kernel("k", 50, 60, 1),
    ]
    host = build.recorded(build.divide(rows, build.run()), "key", "phase")
    assert host["gap:host", "backward"] == 10
    assert host["gap:host", "forward"] == 10 + 10 + 20
