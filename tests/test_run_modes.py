"""Shadow and canary: the stock kernel's results beside the swap's, or the swap's for a share of the calls."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qrprof import kernels
from qrprof.kernels import Mode, guard
from qrprof.kernels.agreement import agrees, difference
from qrprof.kernels.counters import Report
from qrprof.kernels.guard import FAILURES, Swap
from qrprof.kernels.modes import share_of
from qrprof.kernels.qr import postcheck, stock
from qrprof.profiler.errors import QrprofError

SHADOW = Mode("shadow", check_every=1)
A = torch.randn(5, 20, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def uninstalled() -> Iterator[None]:
    yield
    kernels.uninstall()


def install(fast: Callable[..., Any], mode: Mode) -> None:
    kernels.install([Swap("linalg_qr", fast, lambda A, mode="reduced": "", postcheck.qr, stock.qr)], mode)


def report() -> Report:
    return next(report for report in kernels.report() if report.key == "CPU")


def scaled(factor: float) -> Callable[..., Any]:
    def fast(A: Any, mode: str = "reduced") -> Any:
        Q, R = stock.qr(A, mode)
        return Q, R * factor

    return fast


# --- shadow


def test_the_stock_result_is_used_bit_for_bit() -> None:
    expected = torch.linalg.qr(A)
    install(scaled(2.0), Mode("shadow"))
    for _ in range(3):
        got = torch.linalg.qr(A)
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    assert (report().hits, report().shadowed, report().difference) == (0, 3, 1.0)


def test_what_differs_and_how_long_both_took_is_known() -> None:
    install(scaled(1.0), SHADOW)
    assert (report().difference, report().p50_ns, report().stock_p50_ns) == (None, None, None)
    torch.linalg.qr(A)
    assert (report().difference, report().checked, report().failed) == (0.0, 1, 0)
    for times in ((report().p50_ns, report().p99_ns), (report().stock_p50_ns, report().stock_p99_ns)):
        assert None not in times
        assert 0 < times[0] <= times[1]  # type: ignore[operator]


def test_the_largest_difference_is_kept() -> None:
    factors = iter([1.5, 3.0, 1.25])
    install(lambda A, mode="reduced": scaled(next(factors))(A, mode), Mode("shadow"))
    for _ in range(3):
        torch.linalg.qr(A)
    assert report().difference == pytest.approx(2.0)


def test_a_shadow_that_fails_is_counted_and_then_left_alone() -> None:
    def broken(A: Any, mode: str = "reduced") -> Any:
        raise ZeroDivisionError

    expected = torch.linalg.qr(A)
    install(broken, SHADOW)
    for _ in range(FAILURES + 2):
        assert torch.equal(torch.linalg.qr(A).R, expected.R)
    assert (report().open, report().shadowed, report().errors) == (True, 0, FAILURES)
    assert report().fallbacks == {"ZeroDivisionError": FAILURES, "circuit open": 2}


def test_a_shadow_without_memory_is_no_failure() -> None:
    def large(A: Any, mode: str = "reduced") -> Any:
        raise torch.OutOfMemoryError

    install(large, SHADOW)
    torch.linalg.qr(A)
    assert (report().fallbacks, report().errors) == ({"out of memory": 1}, 0)


def test_a_comparison_without_memory_leaves_the_stock_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def large(result: Any, expected: Any) -> Any:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(guard, "difference", large)
    expected = torch.linalg.qr(A)
    install(scaled(1.0), SHADOW)
    assert torch.equal(torch.linalg.qr(A).R, expected.R)
    assert (report().shadowed, report().difference, report().failed) == (1, None, 0)


@pytest.mark.parametrize("nothing", [None, 1.5, []])
def test_what_is_no_result_at_all_is_infinitely_far(nothing: Any) -> None:
    expected = torch.linalg.qr(A)
    install(lambda A, mode="reduced": nothing, SHADOW)
    assert torch.equal(torch.linalg.qr(A).R, expected.R)
    assert (report().failed, report().difference) == (1, torch.inf)


def test_wrong_results_of_a_shadow_are_found() -> None:
    install(scaled(1.5), SHADOW)
    for _ in range(FAILURES + 1):
        torch.linalg.qr(A)
    assert (report().failed, report().open, report().shadowed) == (FAILURES, True, FAILURES)


def test_gradients_under_a_shadow_are_stocks() -> None:
    x = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(torch.linalg.qr(x).R.sum(), x)
    install(scaled(5.0), SHADOW)
    (got,) = torch.autograd.grad(torch.linalg.qr(x).R.sum(), x)
    assert torch.equal(got, expected)
    assert torch.autograd.gradcheck(lambda x: torch.linalg.qr(x).R, x)


# --- canary


@given(st.integers(1, 100), st.integers(1, 2000))
def test_a_share_of_any_number_of_calls_is_served(percent: int, calls: int) -> None:
    mode = Mode("canary", percent / 100)
    served = sum(mode.serves(nth) for nth in range(calls))
    assert abs(served - calls * percent / 100) <= 1
    assert mode.serves(0)


def test_a_canary_serves_its_share_by_the_number_of_the_call() -> None:
    install(scaled(2.0), Mode("canary", 0.25))
    expected = stock.qr(A)[1]
    twice = [bool(torch.linalg.qr(A).R[0, 0, 0] == 2 * expected[0, 0, 0]) for _ in range(9)]
    assert twice == [True, False, False, False, True, False, False, False, True]
    assert (report().hits, report().fallbacks) == (3, {"not in the canary's share": 6})


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("0.05", 0.05), ("100%", 1.0), ("1", 1.0)])
def test_shares(text: str, share: float) -> None:
    assert share_of(text) == share


@pytest.mark.parametrize("text", ["0", "0%", "101%", "5", "-1%", "nan", "five", "", "%"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(QrprofError, match="is no share of the calls"):
        share_of(text)


# --- differences


def test_differences_of_the_same_form() -> None:
    x = torch.tensor([4.0, -8.0, float("nan"), float("inf")])
    assert difference(x, x) == 0.0
    assert difference(x + torch.tensor([0.0, 2.0, 0.0, 0.0]), x) == 0.25
    assert difference((x, x), (x, x + torch.tensor([1.0, 0.0, 0.0, 0.0]))) == 0.125
    assert difference(torch.zeros(3), torch.zeros(3)) == 0.0
    assert difference(torch.ones(3), torch.zeros(3)) == torch.inf
    assert difference(torch.zeros(3), x[:3]) == torch.inf
    assert difference(x.nan_to_num(0.0), x) == torch.inf
    assert difference(torch.arange(3), torch.arange(3)) == 0.0
    assert difference(torch.arange(3), torch.arange(1, 4)) == torch.inf
    assert difference(torch.empty(0), torch.empty(0)) == 0.0


def test_other_forms_are_infinitely_far() -> None:
    x = torch.ones(2, 3)
    for other in (x.double(), x[:1], (x, x)):
        assert difference(other, x) == torch.inf
        assert not agrees(other, x)
    assert difference(x.T.contiguous().T, x) == 0.0
    assert not agrees(x.T.contiguous().T, x)  # compiled code relies on strides


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
def test_rounding_agrees_and_more_does_not(dtype: torch.dtype) -> None:
    x = torch.linspace(1, 2, 100).to(dtype)
    assert agrees(x * (1 + torch.finfo(dtype).eps), x)
    assert not agrees(x * (1 + 2000 * torch.finfo(dtype).eps), x)
