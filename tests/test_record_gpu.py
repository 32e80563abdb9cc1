"""Recording on a CUDA device: kernels matched with launches, device events, graphs, forks, programs without steps."""

from typing import Any

import pytest
import torch

from qrprof.profiler.partition import partition

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
ON_GPU = {"CUDA_VISIBLE_DEVICES": "0"}
MODEL = """\
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(16, 64, device="cuda")
"""


def test_steps_are_timed_by_device_events_and_kernels_belong_to_their_ops(workshop: Any) -> None:
    body = MODEL + (
        "for i in range(150):\n"
        "    optimizer.zero_grad(); model(x).square().mean().backward(); optimizer.step()\n"
        "    if i % 10 == 9: torch.linalg.qr(torch.randn(128, 128, device='cuda'))\n"
    )
    ended = workshop.train(body, **ON_GPU)
    assert ended.code == 0
    run, trace = ended.load()
    assert {block.clock for block in run.unprofiled} == {"device events"}
    assert run.devices[0].kind == "cuda"
    assert (run.period, len(run.recorded)) == (10, 10)
    found = partition(trace, run)
    assert found.on_device
    inside = found.coverage.in_steps
    assert (inside.launches_without_work, inside.work_without_launch) == (0, 0)
    qr = found.rows[found.rows["key"] == "aten::linalg_qr"]
    assert qr["kernel"].str.contains("geqr2|larft|larfb").any()
    assert qr["ns"].sum() > 0
    calls = found.calls[found.calls["key"] == "aten::linalg_qr"]["calls"].sum()
    assert calls == pytest.approx(0.1)
    (call,) = run.linalg
    assert (call.shape, call.device, call.ns_per_step) == ([128, 128], "cuda", None)
    assert call.calls_per_step == pytest.approx(0.1)


def test_a_replayed_graph_is_one_launch_of_many_kernels(workshop: Any) -> None:
    body = MODEL + (
        "stream = torch.cuda.Stream()\n"
        "stream.wait_stream(torch.cuda.current_stream())\n"
        "with torch.cuda.stream(stream):\n"
        "    for _ in range(3): model(x).square().mean().backward()\n"
        "torch.cuda.current_stream().wait_stream(stream)\n"
        "graph = torch.cuda.CUDAGraph()\n"
        "with torch.cuda.graph(graph): model(x).square().mean().backward()\n"
        "for i in range(150): graph.replay(); optimizer.step()\n"
    )
    ended = workshop.train(body, **ON_GPU)
    assert ended.code == 0
    run, trace = ended.load()
    found = partition(trace, run)
    graph = found.rows[found.rows["key"] == "cudaGraphLaunch"]
    assert graph["launches"].sum() >= 8  # a forward and a backward kernel for each of four layers
    assert found.calls[found.calls["key"] == "cudaGraphLaunch"]["calls"].sum() == pytest.approx(1)


def test_a_program_without_steps_may_choose_its_device_late_and_is_recorded_with_its_kernels(workshop: Any) -> None:
    body = (
        "import os, torch\n"
        "os.environ['CUDA_VISIBLE_DEVICES'] = '0'\n"
        "a = torch.randn(4, 256, 256, device='cuda')\n"
        "for matrix in a: torch.linalg.qr(matrix)\n"
        "print(torch.cuda.device_count())\n"
    )
    workshop.write("script.py", body)
    ended = workshop.trace("script.py", **ON_GPU)
    assert (ended.code, ended.out) == (0, "1\n")
    run, trace = ended.load()
    assert run.step_source == "whole run"
    found = partition(trace, run)
    assert found.on_device
    assert found.calls[found.calls["key"] == "aten::linalg_qr"]["calls"].sum() == pytest.approx(4)


def test_a_forked_child_may_use_the_device_before_its_parent_does(workshop: Any) -> None:
    body = (
        "import multiprocessing as mp\n"
        "def work(queue): queue.put(torch.ones(2, device='cuda').sum().item())\n"
        "context = mp.get_context('fork')\n"
        "queue = context.Queue()\n"
        "child = context.Process(target=work, args=(queue,))\n"
        "child.start()\n"
        "print(queue.get(timeout=60))\n"
        "child.join()\n"
        "for i in range(150): step()\n"
    )
    ended = workshop.train(body, **ON_GPU)
    assert (ended.code, ended.out) == (0, "2.0\n")
    assert ended.said == ["recorded 5 steps of train.py; the script goes on; see `qrprof rank`"]


def test_samples_are_the_matrices_on_the_device(workshop: Any) -> None:
    body = MODEL + (
        "for i in range(150):\n"
        "    optimizer.zero_grad(); model(x).square().mean().backward(); optimizer.step()\n"
        "    torch.linalg.qr(torch.full((32, 32), float(i + 1), device='cuda'))\n"
    )
    ended = workshop.train(body, **ON_GPU)
    assert ended.code == 0
    (file,) = (ended.folder / "cache" / "samples").iterdir()
    kept = list(torch.load(file, weights_only=True).values())
    assert len(kept) == 2
    for matrix in kept:
        assert matrix.device.type == "cpu"
        assert matrix.unique().numel() == 1
        assert 1 <= matrix[0, 0] <= 150
