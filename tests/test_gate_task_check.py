"""The checkers: honest ways to the same result pass, shortcuts do not, and the sentence has the numbers."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from gate_tasks import ADDMM, GELU, GENERIC, LAYER_NORM, MM, SOFTMAX, case, task
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from qrprof.planner.gate.aten_task import reference
from qrprof.planner.gate.check import check, misformed, stock
from qrprof.planner.gate.draw import KINDS, Args, draw
from qrprof.planner.gate.qr_task import built_in
from qrprof.planner.gate.records import Finding, Task, Tolerance
from qrprof.planner.gate.relative import Expected, expect, in_units, miss, plainly_right, rounding

EPS = torch.finfo(torch.float32).eps
Candidate = Callable[..., tuple[Tensor, ...]]


def found(
    task: Task, candidate: Candidate, structure: str | None = None, seed: int = 5, dtype: str = ""
) -> list[Finding]:
    (one,) = task.development
    specs = tuple(replace(spec, dtype=dtype or spec.dtype) for spec in one.tensors)
    one = replace(one, structure=structure, tensors=specs)
    args = draw(one, seed, "cpu")
    return check(task, one, args, candidate(*args), stock(task, args))


# --- candidates


def softmax(x: Tensor, dim: int, half_to_float: bool) -> tuple[Tensor, ...]:
    e = (x - x.amax(dim, keepdim=True)).exp()
    return (e / e.sum(dim, keepdim=True),)


def softmax_unshifted(x: Tensor, dim: int, half_to_float: bool) -> tuple[Tensor, ...]:
    return (x.exp() / x.exp().sum(dim, keepdim=True),)


def softmax_in_16_bits(x: Tensor, dim: int, half_to_float: bool) -> tuple[Tensor, ...]:
    return (softmax(x.bfloat16(), dim, False)[0].to(x.dtype),)


def softmax_without_tail(x: Tensor, dim: int, half_to_float: bool) -> tuple[Tensor, ...]:
    (out,) = softmax(x, dim, False)
    return (torch.where(out < 1e-6, 0.0, out),)


def layer_norm(x: Tensor, shape: tuple[int, ...], w: Tensor, b: Tensor, eps: float) -> tuple[Tensor, ...]:
    mean = x.mean(-1, keepdim=True)
    rstd = ((x - mean).square().mean(-1, keepdim=True) + eps).rsqrt()
    return (x - mean) * rstd * w + b, mean, rstd


def layer_norm_in_one_pass(x: Tensor, shape: tuple[int, ...], w: Tensor, b: Tensor, eps: float) -> tuple[Tensor, ...]:
    mean = x.mean(-1, keepdim=True)
    rstd = (x.square().mean(-1, keepdim=True) - mean.square() + eps).rsqrt()
    return (x - mean) * rstd * w + b, mean, rstd


def product_by_columns(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    out = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for k in range(a.shape[1]):
        out += a[:, k : k + 1] * b[k : k + 1]
    return (out,)


def product_in_parts(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return (sum((a[:, k : k + 16] @ b[k : k + 16] for k in range(0, a.shape[1], 16)), torch.zeros(())),)


def short(x: Tensor) -> Tensor:
    """TF32's ten bits of mantissa."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def product_in_tf32(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return (short(a) @ short(b),)


def affine(c: Tensor, a: Tensor, b: Tensor, beta: float, alpha: float) -> tuple[Tensor, ...]:
    return (beta * c + alpha * (a @ b),)


def affine_without_bias(c: Tensor, a: Tensor, b: Tensor, beta: float, alpha: float) -> tuple[Tensor, ...]:
    return (a @ b,)


def gelu(x: Tensor, approximate: str) -> tuple[Tensor, ...]:
    return (0.5 * x * torch.special.erfc(-x * 0.5**0.5),)


def gelu_by_tanh(x: Tensor, approximate: str) -> tuple[Tensor, ...]:
    return (torch.nn.functional.gelu(x, approximate="tanh"),)


HONEST = (
    *((SOFTMAX, softmax), (LAYER_NORM, layer_norm), (MM, product_by_columns), (MM, product_in_parts)),
    *((ADDMM, affine), (GELU, gelu)),
)
SHORTCUTS: tuple[tuple[Task, Candidate, str | None], ...] = (
    (SOFTMAX, softmax_in_16_bits, None),
    (SOFTMAX, softmax_unshifted, "offset"),
    (SOFTMAX, softmax_without_tail, "wide"),
    (LAYER_NORM, layer_norm_in_one_pass, "offset"),
    (MM, product_in_tf32, None),
    (MM, product_in_tf32, "wide"),
    (ADDMM, affine_without_bias, None),
    (GELU, gelu_by_tanh, None),
)


@pytest.mark.parametrize(("op", "candidate"), HONEST, ids=lambda x: getattr(x, "__name__", ""))
@pytest.mark.parametrize("structure", [None, *sorted(set(KINDS) - {"definite", "one_bad"})])
def test_another_order_of_the_same_sums_passes(op: Task, candidate: Candidate, structure: str | None) -> None:
    assert [found(op, candidate, structure, seed) for seed in range(3)] == [[], [], []]


@pytest.mark.parametrize(("op", "candidate", "structure"), SHORTCUTS, ids=lambda x: getattr(x, "__name__", ""))
def test_a_shortcut_in_accuracy_fails(op: Task, candidate: Candidate, structure: str | None) -> None:
    (one, *_) = found(op, candidate, structure)
    assert (one.detector, one.outcome, one.stage) == ("wrong", "FAIL", "development")
    assert one.case == op.development[0].name
    assert "in float64: off by" in one.detail


@pytest.mark.parametrize("op", GENERIC, ids=lambda task: task.op)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("structure", [None, "one_bad", "wide"])
def test_the_stock_op_passes_its_own_check(op: Task, dtype: str, structure: str | None) -> None:
    assert found(op, lambda *args: stock(op, args), structure, dtype=dtype) == []


def test_16_bits_must_be_added_up_in_32() -> None:
    def in_32(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return ((a.float() @ b.float()).to(a.dtype),)

    assert found(MM, in_32, dtype="bfloat16") == []
    assert [one.detector for one in found(MM, product_by_columns, dtype="bfloat16")] == ["wrong"]


def test_64_bits_are_not_to_be_had_from_32() -> None:
    def in_32(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return ((a.float() @ b.float()).double(),)

    assert found(MM, product_by_columns, dtype="float64") == []
    assert [one.detector for one in found(MM, in_32, dtype="float64")] == ["wrong"]


@given(seed=st.integers(0, 2**40), place=st.integers(0, 16 * 33 - 1))
def test_a_single_wrong_number_is_found_where_it_is(seed: int, place: int) -> None:
    (one,) = SOFTMAX.development
    args = draw(one, seed, "cpu")
    (right,) = stock(SOFTMAX, args)
    wrong = right.clone()
    wrong.view(-1)[place] *= 1.001
    (told,) = check(SOFTMAX, one, args, (wrong,), (right,))
    assert f"at {divmod(place, 33)} is" in told.detail
    assert "1 of 528 numbers" in told.detail


# --- what is not finite


def test_where_the_stock_op_is_not_finite_nothing_need_be() -> None:
    (one,) = SOFTMAX.development
    args = draw(replace(one, structure="one_bad"), 3, "cpu")
    (right,) = stock(SOFTMAX, args)
    rows = right.isnan().any(-1)
    assert int(rows.sum()) == 1
    other = torch.where(rows.unsqueeze(-1), torch.inf, right)
    assert check(SOFTMAX, one, args, (other,), (right,)) == []
    finite = torch.where(rows.unsqueeze(-1), 0.0, right)
    assert len(check(SOFTMAX, one, args, (finite,), (right,))) == 1


def test_an_infinity_that_float64_has_too_must_be_there() -> None:
    op = task("exp", case((2,)))
    args: Args = (torch.tensor([torch.inf, 0.0]),)
    (right,) = stock(op, args)
    assert check(op, op.development[0], args, (right,), (right,)) == []
    assert len(check(op, op.development[0], args, (torch.tensor([torch.nan, 1.0]),), (right,))) == 1


def test_overflow_of_the_stock_op_need_not_be_copied() -> None:
    op = task("mm", case((1, 2), (2, 1)))
    args: Args = (torch.tensor([[1e38, -1e38]]), torch.tensor([[4.0], [4.0]]))
    (right,) = stock(op, args)
    assert not right.isfinite().all()
    assert check(op, op.development[0], args, (torch.zeros(1, 1),), (right,)) == []


# --- units


def test_the_unit_of_a_number_grows_with_what_cancels_in_it() -> None:
    a, b = torch.tensor([[1.0, -1.0 + 2**-20]]), torch.ones(2, 1)
    op = partial(reference, "mm")
    (one,) = expect(op, (a, b), op((a, b)), [torch.float32])
    value, unit = float(one.value), float(one.unit)
    assert value == pytest.approx(2**-20)
    assert EPS / 4 < unit < 6 * EPS  # that of terms of size 1, not of the sum


def test_a_unit_is_no_less_than_what_may_be_flushed_or_float64_loses() -> None:
    info = torch.finfo(torch.float32)
    assert float(rounding(torch.zeros(1, dtype=torch.float64), torch.float32)) == info.smallest_normal
    half = torch.finfo(torch.float16)
    assert float(rounding(torch.zeros(1, dtype=torch.float64), torch.float16)) == half.smallest_normal * half.eps
    both = rounding(torch.tensor([0.0, 1.0], dtype=torch.float64), torch.float32)
    assert float(both[0]) == pytest.approx(torch.finfo(torch.float64).eps)


@given(
    errors=st.lists(st.floats(-100, 100), min_size=1, max_size=20),
    theirs=st.lists(st.floats(-5, 5), min_size=1, max_size=20),
)
def test_what_is_plainly_right_misses_nothing(errors: list[float], theirs: list[float]) -> None:
    count = min(len(errors), len(theirs))
    value = torch.ones(count, dtype=torch.float64)
    got, stock_own = ((1 + torch.tensor(x[:count]).double() * EPS).float() for x in (errors, theirs))
    expected = Expected(value, 2 * rounding(value, torch.float32))
    tolerance = Tolerance()
    missed = miss(got, stock_own, expected, tolerance)
    if plainly_right(got, stock_own, value, tolerance):
        assert missed is None
    worst, most = float(in_units(got, stock_own, expected).max()), float(in_units(stock_own, stock_own, expected).max())
    assert (missed is None) == (worst <= max(32.0, 4 * most))


def test_leave_to_be_inexact_for_tiny_results_is_none_for_others() -> None:
    value = torch.cat([torch.full((200,), 1e-6), torch.ones(200)]).double()
    theirs, ours = value.float(), value.float()
    theirs[0] *= 1.01  # the stock kernel is bad for one tiny result
    expected = Expected(value, rounding(value, torch.float32))
    ours[1] *= 1.02
    assert miss(ours, theirs, expected, Tolerance()) is None
    ours[300] *= 1.0001
    missed = miss(ours, theirs, expected, Tolerance())
    assert missed is not None
    assert (missed.at, missed.count) == ((300,), 1)


# --- other than floats


def test_integers_must_be_the_same() -> None:
    op = task("argmax", case((4, 9), plain=(1, False)))
    (one,) = op.development
    args = draw(one, 1, "cpu")
    (right,) = stock(op, args)
    assert check(op, one, args, (right.clone(),), (right,)) == []
    assert len(check(op, one, args, (right + 1,), (right,))) == 1


# --- form


def test_another_form_is_a_broken_contract() -> None:
    x = torch.zeros(2, 3)
    assert misformed((x,), (x,)) == ""
    assert misformed((x, x), (x,)) == "2 outputs, the stock op has 1"
    assert misformed((x.T,), (x,)) == "output 0 is (3, 2) float32, the stock op's is (2, 3) float32"
    told = found(MM, lambda a, b: ((a @ b).double(),))
    assert [(one.detector, one.outcome) for one in told] == [("contract", "FAIL")]


# --- QR

QR, GEQRF = built_in("small", "linalg_qr", "cpu"), built_in("small", "geqrf", "cpu")


@pytest.mark.parametrize("op", [QR, GEQRF], ids=lambda task: task.op)
def test_qr_is_checked_by_lapacks_contract(op: Task) -> None:
    for one in op.development:
        args = draw(one, 11, "cpu")
        right = stock(op, args)
        assert check(op, one, args, right, right) == []
        off = (right[0] * (1 + 1e-4), *right[1:])
        assert [told.detector for told in check(op, one, args, off, right)] == ["wrong"]


def test_other_signs_are_wrong_even_where_the_product_is_right() -> None:
    one = QR.development[0]
    args = draw(one, 11, "cpu")
    q, r = stock(QR, args)
    (told,) = check(QR, one, args, (-q, -r), (q, r))
    assert told.detail.startswith("sign (")
