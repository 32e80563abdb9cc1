"""Swapped ops on a GPU: values and strides, graphs, streams, compiled code, and checks that wait for nothing."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from qrprof import kernels
from qrprof.kernels.counters import Report
from qrprof.kernels.guard import Swap
from qrprof.kernels.modes import Mode
from qrprof.kernels.qr import postcheck, stock

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(autouse=True)
def swapped() -> Iterator[None]:
    kernels.install()
    yield
    kernels.uninstall()


def report(op: str = "linalg_qr") -> Report:
    return next(report for report in kernels.report() if (report.op, report.key) == (op, "CUDA"))


def matrices(*shape: int) -> Any:
    return torch.randn(*shape, device="cuda", generator=torch.Generator("cuda").manual_seed(0))


@pytest.mark.parametrize("shape", [(20, 32, 32), (8, 512, 512), (8, 300, 100), (8, 100, 300), (2, 3, 200, 200)])
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_values_and_strides(shape: tuple[int, ...], mode: str) -> None:
    A = matrices(*shape)
    Q, R = torch.linalg.qr(A, mode)
    expected = stock.qr(A, mode)
    assert (report().hits, report().failed) == (1, 0)
    for a, b in zip((Q, R), expected, strict=True):
        assert (a.shape, a.stride()) == (b.shape, b.stride())
    torch.testing.assert_close(R.abs(), expected[1].abs(), rtol=1e-3, atol=1e-3)
    if mode != "r":
        torch.testing.assert_close(Q @ R, A, rtol=1e-3, atol=1e-3)


def test_factors_and_derivatives() -> None:
    A = matrices(8, 200, 100).requires_grad_()
    H, tau = torch.geqrf(A.detach())
    Q = torch.linalg.householder_product(H, tau)
    torch.testing.assert_close(Q, stock.orgqr(*stock.geqrf(A.detach()))[0], rtol=1e-3, atol=1e-3)
    (own,) = torch.autograd.grad(torch.linalg.qr(A).R.sum(), A)
    kernels.uninstall()
    (other,) = torch.autograd.grad(torch.linalg.qr(A).R.sum(), A)
    torch.testing.assert_close(own, other, rtol=1e-2, atol=1e-2)


def test_in_a_captured_graph() -> None:
    A = matrices(8, 100, 100)
    torch.linalg.qr(A)
    checked = report().checked
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        Q, R = torch.linalg.qr(A)
    assert report().checked == checked
    A.copy_(matrices(8, 100, 100) * 2)
    graph.replay()
    torch.testing.assert_close(Q @ R, A, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled(mode: str) -> None:
    compiled = torch.compile(lambda a: torch.linalg.qr(a * 2.0)[1].abs().sum(), mode=mode, fullgraph=True)
    A = matrices(8, 100, 100)
    expected = stock.qr(A * 2.0)[1].abs().sum()
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        torch.testing.assert_close(compiled(A), expected, rtol=1e-3, atol=1e-2)
    assert report().hits > 0
    assert report().failed == 0
    torch._dynamo.reset()


def test_checks_stay_on_the_device_until_asked_for() -> None:
    def garbage(A: Any, mode: str = "reduced") -> Any:
        Q, R = stock.qr(A, mode)
        return Q, R + 0.1

    kernels.uninstall()
    wrong = Swap("linalg_qr", garbage, lambda A, mode="reduced": "", postcheck.qr, stock.qr)
    kernels.install([wrong], Mode(check_every=1))
    A = matrices(4, 60, 60)
    torch.linalg.qr(A)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.inference_mode():
            torch.linalg.qr(A)
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            torch.linalg.qr(A)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    assert (report().checked, report().failed, report().open) == (3, 3, True)
    assert torch.equal(torch.linalg.qr(A).R, stock.qr(A)[1])


def test_another_device_than_the_current_one() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    A = matrices(8, 100, 100).to("cuda:1")
    Q, R = torch.linalg.qr(A)
    assert Q.device == A.device
    torch.testing.assert_close(Q @ R, A, rtol=1e-3, atol=1e-3)


def test_a_shadow_waits_for_nothing_and_leaves_every_bit() -> None:
    kernels.uninstall()
    A = matrices(20, 32, 32)
    expected = torch.linalg.qr(A)
    kernels.install(mode=Mode("shadow", check_every=1))
    torch.linalg.qr(A)  # which compiles
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        got = torch.linalg.qr(A)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    found = report()
    assert (found.hits, found.shadowed, found.checked, found.failed) == (0, 2, 2, 0)
    assert found.difference is not None
    assert found.difference < 1e-3
    assert None not in (found.p50_ns, found.stock_p50_ns)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.linalg.qr(A)
    assert report().fallbacks == {"a graph is captured": 1}


def test_times_of_the_calls_that_are_checked() -> None:
    torch.linalg.qr(matrices(20, 32, 32))
    assert report().p50_ns is not None
