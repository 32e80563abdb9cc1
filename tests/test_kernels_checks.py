"""The checks of a QR factorisation: what is right passes, and each way of being wrong is caught by its own check."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from qr_cases import DTYPES, EPS, Factored, made
from torch import Tensor

from qrprof.kernels import reference
from qrprof.kernels.checks import Verdict, contest, residuals, residuals_qr, strict
from qrprof.kernels.structures import CASES

NAN = float("nan")


def failed(verdict: Verdict) -> set[str]:
    return {reason.check for reason in verdict.reasons}


@pytest.fixture
def square() -> Factored:
    return Factored.of(made("dense", 4, 32, 32))


@pytest.fixture
def tall() -> Factored:
    return Factored.of(made("dense", 4, 48, 20))


# --- what is right passes


@given(
    case=st.sampled_from(CASES),
    batch=st.lists(st.integers(0, 3), max_size=2),
    m=st.integers(0, 14),
    n=st.integers(0, 14),
    cond=st.sampled_from((0, 2)),
    dtype=st.sampled_from(DTYPES),
    mode=st.sampled_from(("reduced", "complete")),
)
def test_the_stock_ops_pass_at_any_shape(
    case: str, batch: list[int], m: int, n: int, cond: float, dtype: torch.dtype, mode: str
) -> None:
    a = made(case, torch.Size(batch).numel(), m, n, cond, dtype).reshape(*batch, m, n)
    given = Factored.of(a, mode)
    for own in (given.geqrf, given.qr):
        assert own.batch == tuple(batch)
        assert strict(own, own).passed
        assert strict(own).passed
        if case not in ("denormal", "tiny_column"):  # rounded to denormal numbers, far outside the contest's gate
            assert contest(own).passed == (case != "single_bad" or a.numel() == 0)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_stock_ops_pass_at_sizes_where_float32_has_room(case: str, dtype: torch.dtype) -> None:
    for m, n in ((150, 150), (200, 100), (100, 200)):
        given = Factored.of(made(case, 2, m, n, dtype=dtype))
        for own in (given.geqrf, given.qr):
            assert str(strict(own, own)) == "passed"
            small = 0.6 if case in ("denormal", "tiny_column") else 0.25
            assert own.spread("column").worst < small


# --- known answers


@pytest.mark.parametrize(
    ("error", "fails_here", "fails_contest"),
    [(0.99, False, False), (1.01, True, False), (19.9, True, False), (20.1, True, True)],
)
def test_limits_of_the_factors(error: float, fails_here: bool, fails_contest: bool) -> None:
    a, tau = torch.eye(64), torch.zeros(64)
    h = a.clone()
    h[2, 5] = error * 64 * EPS
    own = residuals(a, h, tau)
    assert failed(strict(own)) == ({"column"} if fails_here else set())
    assert failed(contest(own)) == ({"factor"} if fails_contest else set())


@pytest.mark.parametrize(
    ("error", "fails_here", "fails_contest"),
    [(4.9, False, False), (5.1, True, False), (99, True, False), (101, True, True)],
)
def test_limits_of_orthogonality(error: float, fails_here: bool, fails_contest: bool) -> None:
    q = torch.eye(64)
    q[3, 3] += error / 2 * 64 * EPS
    own = residuals_qr(torch.zeros(64, 64), q, torch.zeros(64, 64))
    assert failed(strict(own)) == ({"orthogonality"} if fails_here else set())
    assert failed(contest(own)) == ({"orthogonality"} if fails_contest else set())


def test_a_zero_column_allows_no_error_at_all() -> None:
    given = Factored.of(made("rankdef", 1, 32, 32))
    assert strict(given.geqrf).passed
    given.h[0, 0, -1] = 1e-30
    assert failed(strict(given.geqrf)) == {"column"}
    assert contest(given.geqrf).passed
    given = Factored.of(made("zero", 1, 32, 32))
    given.h[0, 0, -1] = 1e-30
    assert failed(contest(given.geqrf)) == {"factor"}


# --- each way of being wrong


def test_one_bad_matrix_of_64_is_found() -> None:
    given = Factored.of(made("dense", 64, 24, 24).reshape(8, 8, 24, 24))
    stock = given.geqrf
    given.h[3, 5, 2, 20] += 0.5 * given.h[3, 5, 2, 20].abs()
    verdict = strict(given.geqrf, stock)
    assert failed(verdict) == {"column", "column maximum"}
    assert (verdict.reasons[0].at, verdict.reasons[0].column, verdict.reasons[0].failing) == ((3, 5), 20, 1)
    assert "(1 of 64 matrices, at (3, 5), column 20)" in str(verdict)


def test_a_perturbed_r_of_qr_is_found(square: Factored) -> None:
    square.r[2, 0, 9] *= 1 + 1e-3
    assert failed(strict(square.qr)) == {"column"}


def test_an_error_in_a_small_column_passes_the_contest_and_fails_here() -> None:
    given = Factored.of(made("dense", 2, 64, 64, cond=4))
    given.h[1, :64, -1] *= 1.5
    assert contest(given.geqrf).passed
    assert failed(strict(given.geqrf)) >= {"column"}


@pytest.mark.parametrize("n", [64, 256])
def test_reflectors_dropped_from_clustered_columns_pass_the_contest_and_fail_here(n: int) -> None:
    given = Factored.of(made("clustered", 4, n, n))
    given.tau[:, -n // 4 :] = 0
    assert contest(given.geqrf).passed
    assert failed(strict(given.geqrf)) == {"column"}


def blocked(a: Tensor, round_to: Callable[[Tensor], Tensor], nb: int = 32) -> tuple[Tensor, Tensor]:
    """geqrf of one square matrix by blocks; operands of the trailing update go through `round_to`."""
    h, taus = a.clone(), []
    for j in range(0, len(a), nb):
        panel, tau = reference.geqrf(h[j:, j : j + nb])
        h[j:, j : j + nb] = panel
        taus.append(tau)
        v = panel.tril(-1) + torch.eye(*panel.shape, dtype=a.dtype)
        t, c = reference.larft(panel, tau), h[j:, j + nb :]
        w = t.mT @ (round_to(v).mT @ round_to(c))
        c -= round_to(v) @ round_to(w)
    return h, torch.cat(taus)


def as_tf32(x: Tensor) -> Tensor:
    """10 bits of mantissa, the rest cut off."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("case", ["dense", "band", "rowscale", "nearcollinear"])
def test_a_trailing_update_in_tf32_fails_and_in_float32_passes(case: str) -> None:
    (a,) = made(case, 1, 128, 128)
    stock = residuals(a, *torch.geqrf(a))
    full, cut = (residuals(a, *blocked(a, rounding)) for rounding in (torch.clone, as_tf32))
    assert strict(full, stock).passed
    assert failed(strict(cut, stock)) == {"column", "column median", "column maximum"}
    assert cut.spread("column").worst > 7
    assert cut.spread("orthogonality").worst < 1


def other_sign(a: Tensor) -> tuple[Tensor, Tensor]:
    """geqrf whose first reflector has the sign that LAPACK does not choose: as exact, if nothing cancels."""
    alpha, x = a[0, 0], a[1:, 0]
    beta = torch.linalg.vector_norm(a[:, 0]).copysign(alpha)
    v = torch.cat([torch.ones(1, dtype=a.dtype), x / (alpha - beta)])
    tau = (beta - alpha) / beta
    h = a - tau * torch.outer(v, v @ a)
    h[0, 0], h[1:, 0] = beta, v[1:]
    h[1:, 1:], taus = torch.geqrf(h[1:, 1:])
    return h, torch.cat([tau.view(1), taus])


@pytest.mark.parametrize(("m", "n"), [(12, 12), (20, 7), (7, 20)])
def test_a_reflector_with_the_other_sign_is_exact_and_found(m: int, n: int) -> None:
    (a,) = made("dense", 1, m, n)
    h, tau = other_sign(a)
    assert failed(strict(residuals(a, h, tau))) == {"tau", "sign"}
    k = min(m, n)
    q, r = torch.linalg.householder_product(h[:, :k], tau), h[:k].triu()
    assert failed(strict(residuals_qr(a, q, r))) == {"sign"}


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize(("m", "n"), [(12, 12), (20, 7), (7, 20), (70, 70), (90, 65)])
@pytest.mark.parametrize("place", [0, 3, -1])
def test_a_flipped_column_of_q_and_row_of_r_is_found(m: int, n: int, place: int, mode: str) -> None:
    given = Factored.of(made("dense", 3, m, n), mode)
    j = place % min(m, n)
    given.q[1, :, j] *= -1
    given.r[1, j] *= -1
    verdict = strict(given.qr)
    assert failed(verdict) == {"sign"}
    assert (verdict.reasons[0].at, verdict.reasons[0].failing) == ((1,), 1)


def test_signs_of_rounding_noise_are_not_held_against_anyone() -> None:
    a = made("repeated", 4, 100, 100)
    given, exact = Factored.of(a), Factored.of(a.double())
    rounded, true = (x.r.diagonal(dim1=-2, dim2=-1).sign() for x in (given, exact))
    assert (rounded != true).any()
    assert strict(given.qr).passed


def test_the_last_reflector_of_a_square_matrix_is_the_identity(square: Factored) -> None:
    square.h[:, -1, -1] *= -1
    square.tau[:, -1] = 2
    assert failed(strict(square.geqrf)) == {"sign"}


@pytest.mark.parametrize("case", ["upper", "diagonal"])
def test_a_triangular_matrix_is_its_own_r(case: str) -> None:
    a = made(case, 2, 10, 8)
    assert torch.equal(Factored.of(a).h, a)
    assert failed(strict(residuals(a, -a, torch.full((2, 8), 2.0)))) == {"sign"}
    assert failed(strict(residuals_qr(a, -torch.eye(10, 8).repeat(2, 1, 1), -a[:, :8]))) == {"sign"}


def test_a_transposed_q_is_found(square: Factored) -> None:
    square.q = square.q.mT.contiguous()
    assert failed(strict(square.qr)) >= {"column"}
    assert "orthogonality" not in failed(strict(square.qr))
    assert failed(contest(square.qr)) == {"factor"}


def test_a_q_of_another_space_is_found_though_r_is_its_product_with_a(tall: Factored) -> None:
    tall.q = Factored.of(torch.randn(4, 48, 20, generator=torch.Generator().manual_seed(1))).q
    tall.r = tall.q.mT @ tall.a
    assert {"column", "triangle"} <= failed(strict(tall.qr))
    tall.a[:, 20:] = 0
    tall.q, tall.r = Factored.of(tall.a).q, Factored.of(tall.a).r
    assert strict(tall.qr).passed
    tall.a[:, 30, 19] = 0.5 * tall.a[:, 0, 19]  # Q^T A is still R
    assert failed(strict(tall.qr)) == {"column"}


def test_what_is_below_the_diagonal_of_r_is_exactly_zero(square: Factored) -> None:
    square.r[1, 20, 3] = 1e-30
    assert failed(strict(square.qr)) == {"triangle"}


def test_a_tau_that_belongs_to_no_reflector_is_found(square: Factored) -> None:
    square.tau[1, 3] = 2.5
    assert {"tau", "orthogonality", "column"} <= failed(strict(square.geqrf))
    square.tau[1, 3] = -0.5
    assert "tau" in failed(strict(square.geqrf))


def test_a_batch_is_held_to_the_stock_op() -> None:
    given = Factored.of(made("dense", 5, 256, 256))
    stock, exact = given.geqrf, given.h.clone()
    off = 1 + 0.5 * 256 * EPS
    given.h[0].triu_().mul_(off).add_(exact[0].tril(-1))
    assert failed(strict(given.geqrf)) == set()
    assert failed(strict(given.geqrf, stock)) == {"column maximum"}
    given.h[:] = exact.triu() * off + exact.tril(-1)
    verdict = strict(given.geqrf, stock)
    assert failed(verdict) == {"column median", "column maximum"}
    assert verdict.reasons[0].limit == pytest.approx(max(0.05, 10 * stock.spread("column").p50))
    given = Factored.of(given.a)
    given.q *= 1 + 512 * EPS
    given.r *= 1 + 512 * EPS
    assert failed(strict(given.qr)) == set()
    assert failed(strict(given.qr, Factored.of(given.a).qr)) == {"orthogonality median", "orthogonality maximum"}


def test_a_batch_that_the_stock_op_did_not_factor_is_no_measure() -> None:
    """As cuSOLVER with denormals: no reflectors at all are perfectly orthogonal."""
    given = Factored.of(made("dense", 3, 256, 256))
    own = given.geqrf
    given.h[:], given.tau[:] = given.a, 0.0
    stock = given.geqrf
    assert "column" in failed(strict(stock))
    assert stock.spread("orthogonality").worst == 0
    assert own.spread("orthogonality").p50 > 0.05  # more than ten times nothing, and than what is always allowed
    assert failed(strict(own, stock)) == set()


def test_stock_residuals_of_another_batch_are_refused(square: Factored, tall: Factored) -> None:
    with pytest.raises(ValueError, match=r"\(4,\) of 32 x 32 against \(4,\) of 48 x 20"):
        strict(square.geqrf, tall.geqrf)


# --- what is not finite


@pytest.mark.parametrize("bad", [NAN, float("inf")])
def test_a_bad_matrix_is_as_the_stock_op_has_it_and_the_others_count(bad: float) -> None:
    a = made("dense", 5, 16, 16)
    a[3, 4, 5] = bad
    given = Factored.of(a)
    for own in (given.geqrf, given.qr):
        assert own.each.finite.tolist() == own.each.finite_input.tolist() == [True, True, True, False, True]
        assert strict(own, own).passed
        assert failed(contest(own)) == {"finite"}
    hidden = replace(given, h=given.h.nan_to_num(0, 0, 0), tau=given.tau.nan_to_num(0, 0, 0))
    assert failed(strict(hidden.geqrf, given.geqrf)) == {"finite"}
    assert failed(strict(hidden.geqrf)) == {"finite"}
    spoilt = replace(given, h=given.h.clone())
    spoilt.h[1, 2, 2] = NAN
    verdict = strict(spoilt.geqrf, given.geqrf)
    assert failed(verdict) == {"finite"}
    assert verdict.reasons[0].at == (1,)
    spoilt.h[1] = given.h[1]
    spoilt.h[4, 0, 9] += 1
    assert "column" in failed(strict(spoilt.geqrf, given.geqrf))


def test_an_overflow_of_the_stock_op_alone_is_no_fault(square: Factored) -> None:
    own = square.geqrf
    square.h[1] = NAN
    assert strict(own, square.geqrf).passed
    assert failed(strict(square.geqrf, own)) == {"finite"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_garbage_that_is_finite_fails(dtype: torch.dtype) -> None:
    a = made("dense", 2, 16, 16, dtype=dtype)
    garbage = torch.full_like(a, torch.finfo(dtype).max)
    tau = torch.ones(2, 16, dtype=dtype)
    for own in (residuals(a, garbage, tau), residuals_qr(a, garbage, garbage.triu())):
        assert {"column", "orthogonality"} <= failed(strict(own))
        assert failed(contest(own)) == {"factor", "orthogonality"}
        assert own.spread("column").worst > 1e6


def test_null_answers_fail(square: Factored) -> None:
    for h, tau in (
        (square.a, square.tau),
        (square.h, torch.zeros(4, 32)),
        (torch.zeros(4, 32, 32), torch.zeros(4, 32)),
    ):
        assert "column" in failed(strict(residuals(square.a, h, tau)))
    assert "column" in failed(strict(residuals_qr(square.a, torch.eye(32).repeat(4, 1, 1), square.a.triu())))
    assert "triangle" in failed(strict(residuals_qr(square.a, torch.eye(32).repeat(4, 1, 1), square.a)))
