"""The Triton QR kernels in Triton's interpreter; test_kernels_triton.py runs this in a process of its own.

Whether a kernel is interpreted is decided when it is decorated, so that no test beside these may import the kernels.
"""

import os
from dataclasses import replace
from functools import cache

import pytest
import torch

assert os.environ["TRITON_INTERPRET"] == "1"

from qrprof.kernels.qr import blocked, form  # noqa: E402
from qrprof.kernels.qr.configs import Blocked, Config, Leaf, Small, Tiles  # noqa: E402

# NumPy warns where a GPU says inf or NaN.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
EPS = torch.finfo(torch.float32).eps


EXACT = Tiles(columns=16, block_rows=16, warps=4, stages=1, precision="ieee")


def blocks(width: int, tiles: Tiles, programs: int = 1, by_leaves: int = 0) -> Config:
    leaves = tuple(Leaf(rows, warps=4, paired=False) for rows in (32, 128))
    wide = Blocked(
        1 << 30, width, programs, 3, inner=tiles, gram=tiles, join=4, outer=tiles, ahead=0,
        by_leaves=by_leaves, leaf=tiles, applied=EXACT,
    )  # fmt: skip
    return Config(small=(), rows=(), leaves=leaves, blocked=(wide,))


# Block columns and tiles are small, so that small matrices have several of each.
TINY = blocks(32, EXACT)
SHARED = blocks(16, EXACT, programs=12)  # programs share the rows of a tile
HALVED = blocks(32, replace(EXACT, precision="fp16x3"))
LEAVES = blocks(32, replace(EXACT, precision="fp16x3"), by_leaves=1 << 30)
LATER = blocks(32, EXACT, programs=12, by_leaves=2 * 50 * 50)  # from the block column on that leaves so much of two
WHOLE = Config(small=(Small(128, 64, 4, paired=False),), rows=(), leaves=(), blocked=())
# Each path with shapes it serves: one leaf, several leaves, several block columns, partial ones; square, tall, wide.
PATHS = [
    *[(TINY, m, n) for m, n in ((1, 1), (31, 31), (48, 48), (100, 100), (70, 33), (33, 70))],
    *[(SHARED, m, n) for m, n in ((90, 20), (70, 70), (20, 41))],
    *[(HALVED, m, n) for m, n in ((70, 70), (20, 41))],
    *[(LEAVES, m, n) for m, n in ((31, 31), (70, 70), (20, 41), (70, 33))],
    *[(LATER, m, n) for m, n in ((100, 100), (70, 90))],
    *[(WHOLE, m, n) for m, n in ((1, 1), (31, 31), (128, 40), (20, 64), (1, 7), (7, 1))],
]
FEW = [(SHARED, 36, 36), (WHOLE, 20, 20)]


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@cache  # the interpreter takes a second for one
def factored(m: int, n: int) -> tuple[torch.Tensor, torch.Tensor, blocked.Factored]:
    """H and tau of two matrices, and the same with the T that was made on the way."""
    a = randn(2, m, n)
    return *blocked.geqrf(a, TINY), blocked.factor(a, TINY)


def check(a: torch.Tensor, h: torch.Tensor, tau: torch.Tensor) -> None:
    """Every column of Q^T A - R is small against that of A, and Q is orthogonal."""
    m, n = a.shape[-2:]
    k = min(m, n)
    q = torch.linalg.householder_product(h[..., :k].double(), tau.double())
    left = (h.double().triu()[..., :k, :] - q.mT @ a.double()).abs().sum(-2)
    assert (left <= 0.2 * max(n, 10) * EPS * a.double().abs().sum(-2)).all()
    assert ((q.mT @ q - torch.eye(k, dtype=q.dtype)).abs().sum(-2) <= max(n, 10) * EPS).all()


def close(mine: torch.Tensor, stock: torch.Tensor, times: float = 1.0) -> None:
    assert mine.shape == stock.shape
    n = max(10, *mine.shape[-2:])
    assert (mine - stock).abs().max().item() <= times * n * EPS * stock.abs().max().item()


@pytest.mark.parametrize(("config", "m", "n"), PATHS)
def test_geqrf_is_torchs(config: Config, m: int, n: int) -> None:
    a = randn(2, m, n)
    kept = a.clone()
    h, tau = blocked.geqrf(a, config)
    stock_h, stock_tau = torch.geqrf(a)
    check(a, h, tau)
    close(h, stock_h, times=8)
    close(tau, stock_tau, times=8)
    assert torch.equal(*(x.diagonal(dim1=-2, dim2=-1).sign() for x in (h, stock_h)))
    assert (h.stride(), tau.stride()) == (stock_h.stride(), stock_tau.stride())
    assert torch.equal(a, kept)


@pytest.mark.parametrize("config", [SHARED, WHOLE])
@pytest.mark.parametrize("batch", [(), (0,), (1,), (3,), (2, 3), (2, 0)])
def test_batches_of_any_rank(config: Config, batch: tuple[int, ...]) -> None:
    a = randn(*batch, 18, 17)
    h, tau = blocked.geqrf(a, config)
    stock_h, stock_tau = torch.geqrf(a)
    assert (h.shape, tau.shape) == (stock_h.shape, stock_tau.shape)
    if h.numel():
        assert h.stride() == stock_h.stride()
        check(a, h, tau)


@pytest.mark.parametrize(("m", "n"), [(0, 0), (0, 5), (5, 0)])
def test_empty_matrices(m: int, n: int) -> None:
    h, tau = blocked.geqrf(torch.empty(2, m, n))
    assert (h.shape, tau.shape) == ((2, m, n), (2, 0))


@pytest.mark.parametrize("config", [SHARED, WHOLE])
def test_strides_do_not_matter(config: Config) -> None:
    m, n = 20, 18
    a = randn(2, m, n)
    expected = blocked.geqrf(a, config)
    wide = torch.zeros(2, m, 2 * n)
    wide[..., ::2] = a
    for same in (a.mT.contiguous().mT, wide[..., ::2], torch.stack([a, a], 1)[:, 0], a.flip(0).flip(0)):
        for mine, theirs in zip(blocked.geqrf(same, config), expected, strict=True):
            assert torch.equal(mine, theirs)
    assert torch.equal(blocked.geqrf(a[:1].expand(2, m, n), config)[0][1], expected[0][0])


@pytest.mark.parametrize(("config", "m", "n"), FEW)
def test_zero_and_deficient(config: Config, m: int, n: int) -> None:
    a = randn(5, m, n)
    a[0] = 0
    a[1, :, n // 2 :] = 0
    a[2, :, 3] = a[2, :, 2]
    a[3] = a[3].triu()
    a[4, n // 3 :] = 0
    h, tau = blocked.geqrf(a, config)
    assert h.isfinite().all()
    check(a, h, tau)
    assert not h[0].any()
    assert not tau[0].any()  # nothing to reflect: LAPACK's H = I
    assert not tau[1, n // 2 :].any()
    assert torch.equal(h[3], a[3])
    assert not tau[3].any()


@pytest.mark.parametrize(("config", "m", "n"), FEW)
@pytest.mark.parametrize("scale", [1e37, 1e-30, 1e-37])
def test_scales(config: Config, m: int, n: int, scale: float) -> None:
    a = randn(1, m, n)
    a /= a.abs().max()
    h, tau = blocked.geqrf(a * scale, config)
    check(a * scale, h, tau)


@pytest.mark.parametrize(("config", "m", "n"), FEW)
def test_denormal_matrices_and_columns(config: Config, m: int, n: int) -> None:
    a = randn(2, m, n)
    a[0] *= 1e-41
    a[1, :, ::7] *= 1e-38
    h, tau = blocked.geqrf(a, config)
    # The same reflectors as of the same matrix at a scale where nothing is rounded; R to the smallest denormal.
    exact = a.double()
    powers = 2.0 ** exact.abs().amax(-2, keepdim=True).log2().floor()
    other_h, other_tau = blocked.geqrf((exact / powers).float(), config)
    assert torch.equal(tau, other_tau)
    assert torch.equal(h.tril(-1), other_h.tril(-1))
    assert ((h.double() - other_h.double() * powers).triu().abs() <= 2.0**-149).all()


@pytest.mark.parametrize(("config", "m", "n"), FEW)
def test_tiny_below_the_diagonal_still_reflects(config: Config, m: int, n: int) -> None:
    a = torch.eye(m, n)[None].clone()
    a[0, 5, 2] = 1e-25  # its square is no float; LAPACK scales and reflects
    h, tau = blocked.geqrf(a, config)
    _, stock_tau = torch.geqrf(a)
    assert torch.equal(tau, stock_tau)
    assert h[0, 2, 2] == -1


@pytest.mark.parametrize(("config", "m", "n"), FEW)
def test_what_is_not_finite_stays_in_its_matrix(config: Config, m: int, n: int) -> None:
    a = randn(6, m, n)
    clean = [0, 2, 5]  # what is around the others
    clean_h, clean_tau = blocked.geqrf(a[clean], config)
    for one, bad in ((1, float("nan")), (3, float("inf")), (4, -float("inf"))):
        a[one, m // 2, n // 2] = bad
    h, tau = blocked.geqrf(a, config)
    for one in (1, 3, 4):
        assert not h[one].isfinite().all()
    assert torch.equal(h[clean], clean_h)
    assert torch.equal(tau[clean], clean_tau)


def test_pairs_reduce_as_two_sums_do() -> None:
    """What the GPU runs; the interpreter takes a second for a matrix."""
    a = randn(1, 6, 5)
    pairs = replace(WHOLE, small=(Small(8, 8, 1),))
    alone = replace(WHOLE, small=(Small(8, 8, 1, paired=False),))
    for mine, other in zip(blocked.geqrf(a, pairs), blocked.geqrf(a, alone), strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(("m", "n"), [(70, 70), (70, 33), (33, 70)])
def test_orgqr_is_torchs(m: int, n: int, kept: bool) -> None:
    k = min(m, n)
    h, tau, with_t = factored(m, n)
    done = with_t if kept else form.of_reflectors(h, tau, TINY)
    stock = torch.linalg.householder_product(h[..., :k], tau)
    q = form.orgqr(done, k, TINY)
    close(q, stock)
    whole = q if k == m else form.orgqr(done, m, TINY)
    close(whole[..., :k], stock)
    close(whole.mT @ whole, torch.eye(m).expand(2, m, m), times=2)


@pytest.mark.parametrize(("config", "m", "n"), [(LEAVES, 70, 33), (LATER, 100, 100)])
def test_orgqr_has_t_of_leaves_that_were_applied_one_by_one(config: Config, m: int, n: int) -> None:
    a = randn(2, m, n)
    q = form.orgqr(blocked.factor(a, config), n, config)
    close(q, torch.linalg.qr(a)[0], times=8)
    close(q.mT @ q, torch.eye(n).expand(2, n, n), times=2)


def test_orgqr_with_a_tau_of_zero_and_more_columns_than_reflectors() -> None:
    h, tau = torch.geqrf(randn(2, 60, 50))
    tau = tau[:, :40].contiguous()
    tau[0, ::3] = 0
    q = form.orgqr(form.of_reflectors(h, tau, TINY), 50, TINY)
    close(q, torch.linalg.householder_product(h, tau), times=2)


@pytest.mark.parametrize("size", [30.0, 1e6])
def test_orgqr_of_reflectors_that_no_geqrf_made(size: float) -> None:
    """As an orthogonal parametrization gives them: V of any size, tau as small as V is large."""
    v = randn(1, 48, 48).tril(-1) * size
    tau = 2 / (1 + (v**2).sum(-2))
    q = form.orgqr(form.of_reflectors(v, tau, HALVED), 48, HALVED)
    close(q, torch.linalg.householder_product(v, tau), times=2)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize(("m", "k"), [(70, 70), (70, 20)])
def test_ormqr_is_torchs(m: int, k: int, left: bool, transpose: bool) -> None:
    h, tau, done = factored(m, k)
    c = randn(2, m, 11, seed=1) if left else randn(2, 11, m, seed=1)
    stock = torch.ormqr(h, tau, c, left, transpose)
    kept = c.clone()
    product = form.ormqr(done, c, TINY, left=left, transpose=transpose)
    close(product, stock, times=2)
    assert torch.equal(c, kept)


def test_serves_names_its_domain() -> None:
    assert blocked.serves(640, 512, 512, torch.float32)
    assert blocked.serves(1, 4096, 5000, torch.float32)
    assert not blocked.serves(640, 512, 512, torch.float64)
    assert not blocked.serves(1, 8193, 10, torch.float32)
