"""The plain Householder QR against LAPACK through torch: the same numbers to near machine precision, signs too."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from qrprof.kernels import reference
from qrprof.kernels.checks import residuals, residuals_qr, strict
from qrprof.kernels.structures import make

F64 = torch.float64
SHAPES = ((1, 1), (12, 12), (25, 9), (9, 25), (1, 6), (6, 1), (0, 3), (3, 0))
# Where columns are noise after rounding, or have few bits, two right answers differ.
DETERMINED = ("dense", "upper", "diagonal", "rankdef", "clustered", "band", "rowscale", "zero")


def made(case: str, *shape: int, dtype: torch.dtype = F64) -> Tensor:
    *batch, m, n = shape
    a = make(case, torch.Size(batch).numel(), m, n, cond=1, seed=3, device="cpu", dtype=dtype)
    return a.reshape(shape)


def near(x: Tensor, y: Tensor, scale: float = 1) -> bool:
    eps = torch.finfo(x.dtype).eps
    return x.shape == y.shape and x.dtype == y.dtype and torch.allclose(x, y, rtol=0, atol=100 * eps * scale)


@pytest.mark.parametrize("case", DETERMINED)
@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_geqrf_orgqr_and_qr_are_those_of_lapack(case: str, m: int, n: int) -> None:
    a = made(case, 2, m, n)
    h, tau = torch.geqrf(a)
    ours = reference.geqrf(a)
    assert near(ours[0], h, 10)
    assert near(ours[1], tau)
    thin = h[..., : min(m, n)]
    assert near(reference.orgqr(thin, tau), torch.linalg.householder_product(thin, tau))
    for mode in ("reduced", "complete", "r"):
        q, r = torch.linalg.qr(a, mode=mode)
        ours = reference.qr(a, mode)
        assert near(ours[0], q)
        assert near(ours[1], r, 10)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize(("m", "k", "other"), [(12, 12, 5), (20, 7, 30), (6, 1, 1), (1, 1, 3), (4, 2, 0)])
def test_ormqr_is_that_of_lapack(left: bool, transpose: bool, m: int, k: int, other: int) -> None:
    h, tau = torch.geqrf(made("dense", 3, m, k))
    c = made("dense", 3, m, other) if left else made("dense", 3, other, m)
    expected = torch.ormqr(h, tau, c, left, transpose)
    assert near(reference.ormqr(h, tau, c, left=left, transpose=transpose), expected, 10)


@pytest.mark.parametrize(("m", "k"), [(12, 12), (20, 7), (1, 1), (5, 0)])
def test_t_of_larft_makes_q(m: int, k: int) -> None:
    h, tau = torch.geqrf(made("rankdef", 2, m, k))
    v, t = h.tril(-1) + torch.eye(m, k, dtype=F64), reference.larft(h, tau)
    q = torch.eye(m, dtype=F64) - v @ t @ v.mT
    assert torch.equal(t, t.triu())
    assert near(t.diagonal(dim1=-2, dim2=-1), tau)
    assert near(q[..., :k], torch.linalg.householder_product(h, tau))


@pytest.mark.parametrize("batch", [(), (0,), (2, 0), (3, 2), (1, 1, 2)])
def test_batches_of_any_shape(batch: tuple[int, ...]) -> None:
    a = made("dense", *batch, 5, 4)
    h, tau = reference.geqrf(a)
    assert near(h, torch.geqrf(a)[0], 10)
    assert tau.shape == (*batch, 4)
    assert reference.larft(h, tau).shape == (*batch, 4, 4)
    assert reference.ormqr(h, tau, made("dense", *batch, 5, 7)).shape == (*batch, 5, 7)
    q, r = reference.qr(a, "complete")
    assert (q.shape, r.shape) == ((*batch, 5, 5), (*batch, 5, 4))


def test_the_input_stays_as_it_is() -> None:
    a = made("dense", 5, 4)
    c, before = made("dense", 5, 2), a.clone()
    h, tau = reference.geqrf(a)
    kept = (h.clone(), tau.clone(), c.clone())
    reference.ormqr(h, tau, c)
    reference.larft(h, tau)
    assert all(torch.equal(x, y) for x, y in zip((a, h, tau, c), (before, *kept), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("case", ["huge", "denormal", "tiny_column"])
def test_any_scale_is_as_exact_as_lapack(case: str, dtype: torch.dtype) -> None:
    for m, n in ((30, 30), (40, 10), (10, 40), (7, 1)):
        a = made(case, 2, m, n, dtype=dtype)
        h, tau = reference.geqrf(a)
        assert strict(residuals(a, h, tau), residuals(a, *torch.geqrf(a))).passed
        assert strict(residuals_qr(a, *reference.qr(a)), residuals_qr(a, *torch.linalg.qr(a))).passed
        assert near(tau[:, 0], torch.geqrf(a)[1][:, 0])


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("scale", ["normal", "huge", "denormal"])
def test_one_column_is_that_of_lapack_at_every_scale(dtype: torch.dtype, scale: str) -> None:
    a = made("dense" if scale == "normal" else scale, 5, 9, 1, dtype=dtype)
    h, tau = torch.geqrf(a)
    ours = reference.geqrf(a)
    assert near(ours[1], tau)
    assert near(ours[0][:, 1:], h[:, 1:])
    assert torch.allclose(ours[0][:, 0], h[:, 0], rtol=1e-3 if scale == "denormal" else 1e-6, atol=0)


@pytest.mark.parametrize(
    ("column", "beta", "tau", "tail"),
    [
        ([3.0, 4.0], -5, 1.6, 0.5),  # beta has not alpha's sign
        ([-3.0, 4.0], 5, 1.6, -0.5),
        ([0.0, 2.0], -2, 1, 1),
        ([-7.0, 0.0], -7, 0, 0),  # nothing to reflect
        ([0.0, 0.0], 0, 0, 0),
    ],
)
def test_reflectors_with_known_answers(column: list[float], beta: float, tau: float, tail: float) -> None:
    h, taus = reference.geqrf(torch.tensor(column, dtype=F64).view(2, 1))
    assert [*h.flatten().tolist(), float(taus)] == pytest.approx([beta, tail, tau])


def test_a_nan_or_infinity_spoils_its_own_matrix() -> None:
    a = made("single_bad", 4, 6, 6)
    h, tau = reference.geqrf(a)
    bad = ~a.isfinite().flatten(1).all(-1)
    assert int(bad.sum()) == 1
    assert torch.equal(~(h.isfinite().flatten(1).all(-1) & tau.isfinite().all(-1)), bad)
    assert near(h[~bad], torch.geqrf(a[~bad])[0], 10)


@given(
    case=st.sampled_from(("dense", "rankdef", "nearrank", "clustered", "mixed", "repeated", "zero", "denormal")),
    m=st.integers(0, 10),
    n=st.integers(0, 10),
    dtype=st.sampled_from((torch.float32, F64)),
)
def test_any_shape_passes_the_checks(case: str, m: int, n: int, dtype: torch.dtype) -> None:
    a = made(case, 2, m, n, dtype=dtype)
    assert strict(residuals(a, *reference.geqrf(a)), residuals(a, *torch.geqrf(a))).passed
    for mode in ("reduced", "complete"):
        assert strict(residuals_qr(a, *reference.qr(a, mode)), residuals_qr(a, *torch.linalg.qr(a, mode=mode))).passed
