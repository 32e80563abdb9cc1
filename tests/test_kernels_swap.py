"""Swapped ops keep torch's meaning: modes, out=, autograd, vmap, compiled and scripted functions, threads, errors."""

import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from qrprof import kernels
from qrprof.kernels.qr import cpu, dispatch, lanes
from qrprof.kernels.qr.dispatch import Rule
from qrprof.kernels.swap import SwapError

pytestmark = pytest.mark.skipif(not cpu.available(), reason="torch is not built with MKL and OpenMP")


@pytest.fixture(autouse=True)
def swapped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every real matrix on the CPU is in the domain, and two threads share it."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(dispatch, "RULES", (Rule("cpu-batched", "cpu", ("float32", "float64")),))
    lanes.lane_of_shape.cache_clear()
    kernels.install()
    yield
    kernels.uninstall()
    lanes.lane_of_shape.cache_clear()
    torch.set_num_threads(before)


def hits(op: str = "linalg_qr") -> int:
    return next(report.hits for report in kernels.report() if (report.op, report.key) == (op, "CPU"))


def stock(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    kernels.uninstall()
    try:
        return function(*arguments, **keywords)
    finally:
        kernels.install()


def upper(a: torch.Tensor) -> torch.Tensor:
    r: torch.Tensor = torch.linalg.qr(a)[1]
    return r


@pytest.mark.parametrize("shape", [(20, 8), (8, 20), (1, 1), (6, 5, 3, 20, 8)])
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_modes_values_and_strides(shape: tuple[int, ...], mode: str) -> None:
    A = torch.randn(shape, dtype=torch.float64)
    expected = stock(torch.linalg.qr, A, mode)
    meta = torch.linalg.qr(A.to("meta"), mode)
    got = torch.linalg.qr(A, mode)
    assert hits() == 1
    for a, b, c in zip(got, expected, meta, strict=True):
        assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype) == (c.shape, c.stride(), c.dtype)
        torch.testing.assert_close(a, b)


def test_factors_and_the_q_of_them() -> None:
    A = torch.randn(3, 20, 8)
    expected = stock(torch.geqrf, A)
    H, tau = torch.geqrf(A)
    torch.testing.assert_close((H, tau), tuple(expected))
    Q = torch.linalg.householder_product(H, tau)
    torch.testing.assert_close(Q, stock(torch.linalg.householder_product, H, tau))
    kernels.uninstall()
    kernels.install()
    layer = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(8, 8), orthogonal_map="householder")
    layer(torch.randn(2, 8)).sum().backward()
    assert hits("geqrf") >= 1
    assert hits("linalg_householder_product") >= 1


def test_out_is_stock() -> None:
    A = torch.randn(5, 20, 8)
    Q, R = torch.empty(0), torch.empty(0)
    torch.linalg.qr(A, out=(Q, R))
    assert hits() == 0
    torch.testing.assert_close(Q @ R, A)
    inplace = torch.empty(5, 20, 8)
    H, tau = torch.geqrf(A, out=(torch.empty(0), torch.empty(0)))
    torch.linalg.householder_product(H, tau, out=inplace)
    torch.testing.assert_close(inplace, Q)


def test_derivatives() -> None:
    A = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(torch.linalg.qr, A)
    assert torch.autograd.gradgradcheck(torch.linalg.qr, A)
    H, tau = (x.detach().requires_grad_() for x in torch.geqrf(A))
    assert torch.autograd.gradcheck(torch.linalg.householder_product, (H, tau))
    assert hits() > 0
    assert hits("linalg_householder_product") > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jacfwd scripts a function
        backward, forward = torch.func.jacrev(upper)(A.detach()), torch.func.jacfwd(upper)(A.detach())
    torch.testing.assert_close(backward, forward)


def test_vmap_is_one_batched_call() -> None:
    A = torch.randn(7, 20, 8)
    got = torch.vmap(torch.linalg.qr)(A)
    assert hits() == 1
    torch.testing.assert_close(tuple(got), tuple(torch.linalg.qr(A)))
    torch.vmap(torch.func.grad(lambda a: torch.linalg.qr(a)[1].sum()))(A)
    assert hits() == 3


COMPILERS = ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]


@pytest.mark.parametrize("backend", COMPILERS)
def test_compiled_before_and_after(backend: str) -> None:
    if backend == "inductor" and not shutil.which("g++"):
        pytest.skip("inductor needs a C++ compiler")

    def loss(a: Any) -> Any:
        Q, R = torch.linalg.qr(a * 2.0)
        return (Q.sin() + 1.0).sum() + R.abs().sum()

    A = torch.randn(6, 20, 8, requires_grad=True)
    (expected,) = torch.autograd.grad(loss(A), A)
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(loss, backend=backend, fullgraph=True)
        stock(lambda: torch.autograd.grad(compiled(A), A))
        assert hits() == 0
        (got,) = torch.autograd.grad(compiled(A), A)  # compiled while stock
        assert hits() == 1
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
        torch._dynamo.reset()
        torch.autograd.grad(torch.compile(loss, backend=backend, dynamic=True)(A), A)  # compiled while swapped
        assert hits() == 2
    torch._dynamo.reset()


def test_scripted_traced_and_exported() -> None:
    A = torch.randn(4, 20, 8)

    class Upper(torch.nn.Module):
        def forward(self, a: torch.Tensor) -> torch.Tensor:
            return upper(a)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        functions = [
            torch.jit.script(upper),
            torch.jit.trace(upper, A),  # type: ignore[no-untyped-call]
            torch.export.export(Upper(), (A,)).module(),
        ]
        before = hits()
        results = [function(A) for function in functions]
    assert hits() == before + 3
    for result in results:
        torch.testing.assert_close(result, upper(A))


def test_inside_torch_and_in_each_mode() -> None:
    A = torch.randn(30, 20)
    torch.svd_lowrank(A, q=4)
    in_torch = hits()
    assert in_torch > 0
    torch.nn.init.orthogonal_(torch.empty(8, 8))
    with torch.inference_mode():
        inside = torch.linalg.qr(torch.randn(30, 20))
    with torch.no_grad():
        torch.linalg.qr(A)
    torch.linalg.qr(torch.nn.Parameter(A)).Q.sum().backward()
    torch.linalg.qr(inside.Q)  # an inference tensor outside
    assert hits() == in_torch + 5


def test_other_threads_and_the_backward() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return torch.linalg.qr(a).R

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return torch.linalg.qr(grad).R

    thread = threading.Thread(target=lambda: torch.linalg.qr(torch.randn(6, 20, 8)))
    thread.start()
    thread.join()
    A = torch.randn(6, 8, 8, requires_grad=True)
    Twice.apply(A).sum().backward()  # type: ignore[no-untyped-call]
    assert hits() == 3


def test_errors_are_torchs() -> None:
    calls: list[Callable[[], Any]] = [
        lambda: torch.linalg.qr(torch.randn(3)),
        lambda: torch.linalg.qr(torch.ones(100, 100, dtype=torch.int64)),
        lambda: torch.linalg.qr(torch.randn(100, 100).half()),
        lambda: torch.linalg.qr(torch.randn(100, 100), "full"),
        lambda: torch.geqrf(torch.randn(5000)),
        lambda: torch.linalg.householder_product(torch.randn(10, 100), torch.randn(10)),
        lambda: torch.linalg.householder_product(torch.randn(100, 100), torch.randn(101)),
    ]
    for call in calls:
        with pytest.raises(Exception) as expected:  # noqa: PT011 - the same one is asked for below
            stock(call)
        with pytest.raises(expected.type) as raised:
            call()
        assert str(raised.value) == str(expected.value)
    assert hits() == 0


def test_what_is_outside_is_stock_and_counted() -> None:
    A = torch.randn(100, 60, dtype=torch.complex64)
    assert torch.equal(torch.linalg.qr(A).R, stock(torch.linalg.qr, A).R)
    torch.linalg.qr(A)
    torch.linalg.qr(torch.randn(0, 4))
    torch.linalg.qr(A.real.to("meta"))  # no call at all
    assert hits() == 0
    assert kernels.report()[0].fallbacks == {"shape or dtype": 2}


def test_uninstall_restores_stock_and_two_installs_are_refused() -> None:
    with pytest.raises(SwapError, match="installed already"):
        kernels.install()
    torch.linalg.qr(torch.randn(6, 20, 8))
    assert hits() == 1
    kernels.uninstall()
    assert kernels.report() == []
    kernels.uninstall()
    A = torch.randn(3, 20, 8)
    assert "RegisterCPU" in repr(torch.library.get_kernel("aten::linalg_qr", "CPU"))
    torch.linalg.qr(A)
    kernels.install()
    assert hits() == 0


def test_nothing_is_warned_about_and_nothing_else_changes() -> None:
    code = (
        "import torch\nfrom qrprof import kernels\nkernels.install()\n"
        "torch.linalg.qr(torch.randn(64, 64, 64)); kernels.uninstall()\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_environment_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.uninstall()
    monkeypatch.setenv("QRPROF_SWAPS", "off")
    kernels.install()
    torch.linalg.qr(torch.randn(6, 20, 8))
    assert kernels.report() == []
    assert "RegisterCPU" in repr(torch.library.get_kernel("aten::linalg_qr", "CPU"))


def test_inside_a_recorded_program(workshop: Any) -> None:
    body = (
        "torch.set_num_threads(2)\n"
        "from qrprof import kernels\nkernels.install()\n"
        "for _ in range(40):\n    torch.linalg.qr(torch.randn(64, 64, 64))\n    step()\n"
        "print(kernels.report()[0].hits)\n"
    )
    ended = workshop.train(body, OMP_NUM_THREADS="2")
    assert (ended.code, ended.out) == (0, "40\n"), ended.err
