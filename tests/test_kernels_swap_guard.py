"""A swap that fails does no harm: it falls back, is counted, is found out by checks, and is switched off."""

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import torch

from qrprof import kernels
from qrprof.kernels.counters import Report
from qrprof.kernels.guard import FAILURES, Guard, Swap
from qrprof.kernels.modes import CHECK_EVERY, Mode
from qrprof.kernels.qr import postcheck, stock
from qrprof.kernels.swap import SwapError


@pytest.fixture(autouse=True)
def uninstalled() -> Iterator[None]:
    yield
    kernels.uninstall()


def swap(fast: Callable[..., Any], **fields: Any) -> Swap:
    given = {"decline": lambda A, mode="reduced": "", "check": postcheck.qr, "stock": stock.qr} | fields
    return Swap("linalg_qr", fast, **given)


def report() -> Report:
    return next(report for report in kernels.report() if report.key == "CPU")


def right(A: Any, mode: str = "reduced") -> Any:
    return stock.qr(A, mode)


def garbage(A: Any, mode: str = "reduced") -> Any:
    Q, R = stock.qr(A, mode)
    return Q, R + 0.01


ALWAYS_CHECKED = Mode(check_every=1)


def test_a_kernel_that_raises_falls_back_and_opens_the_circuit() -> None:
    def broken(A: Any, mode: str = "reduced") -> Any:
        raise ZeroDivisionError

    kernels.install([swap(broken)])
    for shape in [(20, 8), (100, 60), (3, 3), (3, 3)]:
        A = torch.randn(shape)
        torch.testing.assert_close(tuple(torch.linalg.qr(A)), stock.qr(A))
    assert report().fallbacks == {"ZeroDivisionError": FAILURES, "circuit open": 1}
    assert (report().open, report().errors, report().hits, report().checked) == (True, FAILURES, 0, 0)


@pytest.mark.parametrize("kind", ["swap", "shadow", "canary"])
def test_a_domain_that_raises_falls_back_and_opens_the_circuit(kind: Any) -> None:
    def broken(A: Any, mode: str = "reduced") -> str:
        raise ZeroDivisionError

    kernels.install([swap(right, decline=broken)], Mode(kind))
    for _ in range(FAILURES + 1):
        A = torch.randn(20, 8)
        torch.testing.assert_close(tuple(torch.linalg.qr(A)), stock.qr(A))
    assert report().fallbacks == {"ZeroDivisionError": FAILURES, "circuit open": 1}
    assert (report().open, report().errors, report().hits) == (True, FAILURES, 0)


def test_garbage_is_caught_and_opens_the_circuit() -> None:
    kernels.install([swap(garbage)], ALWAYS_CHECKED)
    A = torch.randn(5, 20, 8)
    for _ in range(FAILURES):
        assert not torch.equal(torch.linalg.qr(A).R, stock.qr(A)[1])
    assert torch.equal(torch.linalg.qr(A).R, stock.qr(A)[1])
    got = report()
    assert (got.open, got.hits, got.checked, got.failed, got.errors) == (True, FAILURES, FAILURES, FAILURES, 0)
    assert got.fallbacks == {"circuit open": 1}


def test_results_of_another_shape_are_failures_too() -> None:
    kernels.install([swap(lambda A, mode="reduced": (A[..., :1], A))], ALWAYS_CHECKED)
    torch.linalg.qr(torch.randn(20, 8))
    assert (report().checked, report().failed) == (1, 1)


@pytest.mark.parametrize("result", [None, (), ("Q", "R"), (torch.eye(3),), torch.eye(3), [torch.eye(3)] * 3])
def test_what_the_op_cannot_return_is_a_call_that_raised(result: Any) -> None:
    kernels.install([swap(lambda A, mode="reduced": result, check=None)])
    A = torch.randn(5, 3)
    torch.testing.assert_close(tuple(torch.linalg.qr(A)), stock.qr(A))
    assert (report().hits, report().errors, report().fallbacks) == (0, 1, {"TypeError": 1})


@pytest.mark.parametrize("result", [[torch.eye(3)], 1.5, None])
def test_one_tensor_is_no_list_of_one(result: Any) -> None:
    kernels.install([Swap("_softmax", lambda *_: result, lambda *_: "")])
    torch.testing.assert_close(torch.ones(4).softmax(0), torch.full((4,), 0.25))
    assert report().errors == 1


def test_one_call_in_so_many_is_checked() -> None:
    kernels.install([swap(right)])
    for _ in range(2 * CHECK_EVERY + 1):
        torch.linalg.qr(torch.randn(20, 8))
    got = report()
    assert (got.hits, got.checked, got.failed, got.open) == (2 * CHECK_EVERY + 1, 3, 0, False)
    assert got.p50_ns is not None
    assert got.p95_ns is not None
    assert got.p99_ns is not None
    assert 0 < got.p50_ns <= got.p95_ns <= got.p99_ns


def test_a_call_outside_the_domain_is_counted_by_reason() -> None:
    kernels.install([swap(right, decline=lambda A, mode="reduced": "large" if A.numel() > 100 else "")])
    for size in (5, 20, 20):
        torch.linalg.qr(torch.randn(size, size))
    assert (report().hits, report().fallbacks) == (1, {"large": 2})


def test_out_of_memory_falls_back_and_is_no_failure() -> None:
    def large(A: Any, mode: str = "reduced") -> Any:
        raise torch.OutOfMemoryError

    kernels.install([swap(large)])
    for _ in range(FAILURES + 1):
        torch.linalg.qr(torch.randn(3, 3))
    assert (report().fallbacks, report().open) == ({"out of memory": FAILURES + 1}, False)


def test_where_memory_ran_out_stock_has_what_the_swap_held() -> None:
    held: list[Any] = []

    def large(A: Any, mode: str = "reduced") -> Any:
        scratch = torch.empty(1000)
        held.append(weakref.ref(scratch))
        raise torch.OutOfMemoryError

    def stock(A: Any, mode: str = "reduced") -> Any:
        held.append(held[0]() is None)
        return right(A, mode)

    kernels.install([swap(large, stock=stock)])
    torch.linalg.qr(torch.randn(100, 100))
    assert held[1:] == [True]


def test_a_check_without_memory_is_no_failure() -> None:
    def check(nth: int, result: Any, A: Any, mode: str = "reduced") -> Any:
        raise torch.OutOfMemoryError

    kernels.install([swap(right, check=check)], ALWAYS_CHECKED)
    for _ in range(FAILURES + 1):
        torch.linalg.qr(torch.randn(3, 3))
    assert (report().hits, report().checked, report().failed, report().open) == (FAILURES + 1, 0, 0, False)


def test_a_report_waits_for_what_other_streams_have_yet_to_count(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Guard(swap(right), "CPU")
    guard.on_gpu = True
    guard.flags[0, 7] = torch.tensor(0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: guard.flags[device, 7].add_(2))
    assert guard.report().failed == 2


def test_a_report_bears_a_stream_that_begins_meanwhile() -> None:
    guard = Guard(swap(right), "CPU")

    class Flag:
        def __int__(self) -> int:
            guard.flags[0, 8] = torch.tensor(1)
            return 2

    guard.flags[0, 7] = cast("torch.Tensor", Flag())
    assert [guard.report().failed for _ in range(2)] == [2, 3]


def test_any_other_op_can_be_swapped() -> None:
    def softmax(x: Any, dim: int, half_to_float: bool) -> Any:
        shifted = (x - x.amax(dim, keepdim=True)).exp()
        return shifted / shifted.sum(dim, keepdim=True)

    kernels.install([Swap("_softmax", softmax, decline=lambda x, dim, half_to_float: "" if dim == -1 else "dim")])
    x = torch.randn(4, 5, requires_grad=True)
    expected = torch.tensor([0.25] * 4)
    torch.testing.assert_close(torch.ones(4).softmax(-1), expected)
    torch.testing.assert_close(torch.ones(4).softmax(0), expected)
    assert torch.autograd.gradcheck(lambda x: x.softmax(-1), x.detach().double().requires_grad_())
    assert report().hits > 1
    assert report().fallbacks == {"dim": 1}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int32, torch.bool])
@pytest.mark.parametrize("number", [2.1, 3, True, 1 + 2j, -0.0, 0.0, float("inf")])
def test_a_number_in_the_place_of_a_tensor_does_not_decide_on_the_dtype(dtype: torch.dtype, number: complex) -> None:
    def broken(x: Any, y: Any) -> Any:
        raise ZeroDivisionError

    tensors = [torch.ones(3, dtype=dtype), torch.ones((), dtype=dtype)]
    expected = [repr(x * number) for x in tensors]
    kernels.install([Swap("mul.Tensor", broken, decline=lambda x, y: "a number" if x.dim() else "")])
    results = [x * number for x in tensors]
    kernels.uninstall()
    assert [repr(one) for one in results] == expected


def test_an_op_is_swapped_once() -> None:
    with pytest.raises(SwapError, match="twice"):
        kernels.install([swap(right), swap(garbage)])
    kernels.install([swap(right)])


def test_counts_of_many_threads_are_exact() -> None:
    kernels.install([swap(right, check=None)])

    def call() -> None:
        for _ in range(200):
            torch.linalg.qr(torch.randn(3, 3))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert report().hits == 1600


def test_a_large_fallback_leaves_the_gil_to_others() -> None:
    """`call_boxed` of the kept kernel would hold it for the whole factorisation."""
    kernels.install([swap(right, decline=lambda A, mode="reduced": "no")])
    seen: list[float] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.0005):
            seen.append(time.perf_counter())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        for _ in range(200):
            begin = time.perf_counter()
            torch.linalg.qr(torch.randn(700, 700))
            end = time.perf_counter()
            if sum(begin < at < end for at in seen) >= 3:
                break
        else:
            pytest.fail("no other thread ran during a call")
    finally:
        done.set()
        thread.join()


def test_failures_are_told_at_exit(workshop: Any) -> None:
    workshop.write(
        "fails.py",
        "import torch\nfrom qrprof import kernels\nfrom qrprof.kernels.guard import Swap\n"
        "def broken(A, mode='reduced'): raise OSError\n"
        "kernels.install([Swap('linalg_qr', broken, lambda *_: '')])\n"
        "for _ in range(5): torch.linalg.qr(torch.eye(3))\n",
    )
    ended = workshop.python("fails.py")
    assert ended.said == [
        "swap of linalg_qr on CPU: 0 of 0 checked results wrong, 3 calls raised; stock served every later call"
    ]


SIZES = [(1, 1), (5, 1), (1, 5), (3, 3), (40, 40), (100, 30), (30, 100), (4, 60, 60), (300, 20)]


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("scale", [1.0, 1e-40, 1e-42, 1e37])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_checks_pass_what_torch_computes(shape: tuple[int, ...], scale: float, dtype: Any) -> None:
    for nth in range(3):
        A = torch.randn(shape, dtype=dtype) * scale
        for mode in ("reduced", "complete", "r"):
            assert postcheck.qr(nth, torch.linalg.qr(A, mode), A, mode)
        H, tau = torch.geqrf(A)
        assert postcheck.geqrf(nth, (H, tau), A)
        if shape[-2] >= shape[-1]:
            assert postcheck.orgqr(nth, torch.linalg.householder_product(H, tau), H, tau)


def test_checks_find_what_is_wrong() -> None:
    A = torch.randn(4, 60, 60)
    Q, R = torch.linalg.qr(A)
    H, tau = torch.geqrf(A)
    for change in (1e-2, float("nan"), float("inf")):
        at = torch.zeros(4, 60, 60)
        at[2, 10, 20] = change
        assert not postcheck.qr(2, (Q + at, R), A)
        assert not postcheck.qr(2, (Q, R + at), A)
        assert not postcheck.qr(2, (Q[:0], R + at), A, "r")
        assert not postcheck.geqrf(2, (H + at, tau), A)
        assert not postcheck.orgqr(2, Q + at, H, tau)
        assert postcheck.qr(1, (Q + at, R), A)  # another matrix
    skipped = R.clone()
    skipped[2, 30:, 40] *= 1.001  # one small column
    assert not postcheck.qr(2, (Q, skipped), A)


def test_checks_find_rows_that_were_left_out() -> None:
    """Q has orthonormal columns and R is Q^T A: of the first rows alone."""
    A = torch.randn(2048, 32)
    top = A[:1024]
    Q, R = torch.linalg.qr(top)
    H, tau = torch.geqrf(top)
    assert postcheck.qr(0, (Q, R), top)
    assert postcheck.geqrf(0, (H, tau), top)
    nothing = torch.zeros(1024, 32)
    assert not postcheck.qr(0, (torch.cat([Q, nothing]), R), A)
    assert not postcheck.geqrf(0, (torch.cat([H, nothing]), tau), A)


@pytest.mark.parametrize(("shape", "mode"), [((64, 64), "reduced"), ((64, 48), "complete"), ((64, 64), "r")])
def test_checks_find_what_was_not_factored(shape: tuple[int, int], mode: str) -> None:
    A = torch.randn(shape)
    assert not postcheck.qr(0, (torch.eye(64), A), A, mode)


def test_checks_pass_non_finite_input() -> None:
    A = torch.randn(4, 20, 20)
    A[2, 3, 3] = float("nan")
    Q, R = torch.linalg.qr(A)
    H, tau = torch.geqrf(A)
    assert postcheck.qr(2, (Q, R), A)
    assert postcheck.qr(2, (Q[:0], R), A, "r")
    assert postcheck.geqrf(2, (H, tau), A)
    assert postcheck.orgqr(2, torch.linalg.householder_product(H, tau), H, tau)
