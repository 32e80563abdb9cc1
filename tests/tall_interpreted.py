"""QR of tall matrices in Triton's interpreter; test_kernels_qr_tall.py runs this in a process of its own.

Whether a kernel is interpreted is decided when it is decorated, so that no test beside these may import the kernels.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

assert os.environ["TRITON_INTERPRET"] == "1"

from qrprof.kernels.checks import residuals_qr, strict  # noqa: E402
from qrprof.kernels.qr import tall  # noqa: E402
from qrprof.kernels.qr.configs import Blocked, Config, Leaf, Tall, Tiles  # noqa: E402
from qrprof.kernels.qr.tall_kernels import qrprof_orgqr_signs  # noqa: E402

# NumPy warns where a GPU says inf or NaN.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

EXACT = Tiles(columns=16, block_rows=32, warps=4, stages=1, precision="ieee")
SMALL = Config(
    small=(),
    rows=(),
    leaves=tuple(Leaf(rows, warps=4, paired=False) for rows in (32, 64, 128)),
    blocked=(Blocked(1 << 30, 32, 1, 1, EXACT, EXACT, 4, EXACT, ahead=0, by_leaves=0, leaf=EXACT, applied=EXACT),),
    tall=(Tall(columns=64, rows=40, top=60, tile=16, warps=4, precision="ieee"),),
)
FULL = replace(SMALL, tall=(replace(SMALL.tall[0], rows=32, top=32),))  # blocks of whole leaves
WIDE = replace(SMALL, tall=(replace(SMALL.tall[0], rows=80, top=80, tile=32),))


@pytest.fixture(autouse=True)
def passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is copied in several passes."""
    monkeypatch.setattr(tall, "COPY_ROWS", 16)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def factored(a: Tensor, config: Config = SMALL) -> tuple[Tensor, Tensor]:
    r, q = tall.qr(a, config, "reduced")
    return q, r


def check(a: Tensor, q: Tensor, r: Tensor) -> None:
    verdict = strict(residuals_qr(a, q, r), residuals_qr(a, *torch.linalg.qr(a)))
    assert verdict.passed, str(verdict)


# --- like torch's


@pytest.mark.parametrize(
    ("config", "batch", "m", "n", "blocks"),
    [
        (SMALL, 2, 62, 6, [2, 1]),
        (SMALL, 1, 150, 5, [4, 1]),  # 38 rows each, two of them not there
        (SMALL, 1, 62, 1, [2, 1]),
        (FULL, 1, 160, 16, [5, 3, 2, 1]),
        (WIDE, 1, 130, 36, [2, 1]),  # several leaves
        (SMALL, 1, 60, 7, [1]),
    ],
)
def test_values_signs_and_strides_are_torchs(
    monkeypatch: pytest.MonkeyPatch, config: Config, batch: int, m: int, n: int, blocks: list[int]
) -> None:
    seen: list[int] = []

    def signed(levels: list[tall.Level], *others: Any) -> Any:
        seen.extend(level.blocks for level in levels)
        return stock_signed(levels, *others)

    stock_signed = tall.signed
    monkeypatch.setattr(tall, "signed", signed)
    a = randn(batch, m, n)
    kept = a.clone()
    q, r = factored(a, config)
    stock_q, stock_r = torch.linalg.qr(a)
    torch.testing.assert_close(q, stock_q, rtol=0, atol=2e-6)
    torch.testing.assert_close(r, stock_r, rtol=0, atol=1e-5)
    assert (q.stride(), r.stride()) == (stock_q.stride(), stock_r.stride())
    check(a, q, r)
    assert torch.equal(a, kept)
    assert seen == blocks


def test_r_alone_is_the_same() -> None:
    a = randn(1, 62, 3)
    (alone,) = tall.qr(a, SMALL, "r")
    assert torch.equal(alone, factored(a)[1])


def test_strides_do_not_matter() -> None:
    a = randn(1, 62, 3)
    wide = torch.zeros(1, 62, 6)
    wide[..., ::2] = a
    expected = factored(a)
    for same in (a.mT.contiguous().mT, wide[..., ::2]):
        for mine, theirs in zip(factored(same), expected, strict=True):
            assert torch.equal(mine, theirs)
    assert torch.equal(factored(a.expand(2, 62, 3))[0][1], expected[0][0])


# --- matrices of structure


def zero_column(a: Tensor) -> None:
    a[:, 2] = 0


def rank_deficient(a: Tensor) -> None:
    a[:, 3:] = 0


def repeated(a: Tensor) -> None:
    a[:, 3] = a[:, 1]


def graded(a: Tensor) -> None:
    a *= torch.logspace(20, -20, a.shape[1])


def graded_rows(a: Tensor) -> None:
    a *= torch.logspace(0, -12, a.shape[0])[:, None]


def small_first_rows(a: Tensor) -> None:
    a[: a.shape[1]] *= 1e-3


# Where alpha rounds to zero beside its column, its sign is chance.
def tiny_first_rows(a: Tensor) -> None:
    a[: a.shape[1]] *= 1e-30


def no_first_rows(a: Tensor) -> None:
    a[: a.shape[1]] = 0


def first_rows_alone(a: Tensor) -> None:
    a[a.shape[1] :] = 0


def denormal_column(a: Tensor) -> None:
    a[:, 1] *= 1e-41


def huge_column(a: Tensor) -> None:
    a[:, 1] *= 1e37


def nearly_upper(a: Tensor) -> None:
    a[:] = torch.eye(*a.shape)
    a[-1] = 1e-25  # in the last block alone: too small for Q, and yet reflected


STRUCTURES = (
    zero_column, rank_deficient, repeated, graded, graded_rows, tiny_first_rows, no_first_rows, first_rows_alone,
    denormal_column, huge_column, nearly_upper,
)  # fmt: skip


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda structure: structure.__name__)
def test_structures_are_factored_as_well_as_stock(structure: Callable[[Tensor], None]) -> None:
    a = randn(1, 70, 6)
    structure(a[0])
    check(a, *factored(a))


@pytest.mark.parametrize("structure", [graded, graded_rows, small_first_rows, huge_column, nearly_upper])
def test_signs_of_structures_are_torchs(structure: Callable[[Tensor], None]) -> None:
    a = randn(1, 70, 6)
    structure(a[0])
    (r,) = tall.qr(a, SMALL, "r")
    assert torch.equal(r.diagonal(dim1=1, dim2=2).sign(), torch.linalg.qr(a)[1].diagonal(dim1=1, dim2=2).sign())


@pytest.mark.parametrize("structure", ["triangle", "zero"])
def test_nothing_to_reflect(structure: str) -> None:
    """LAPACK's reflectors are the identity, and R keeps A's signs."""
    a = randn(1, 70, 6).triu() if structure == "triangle" else torch.zeros(1, 70, 6)
    q, r = factored(a)
    assert torch.equal(q[0], torch.eye(70, 6))
    assert torch.equal(r, a[:, :6])


def test_denormal_matrices() -> None:
    a = randn(1, 70, 6) * 1e-41
    check(a, *factored(a))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_matrix(bad: float) -> None:
    a = randn(3, 62, 3)
    clean = factored(a[::2])
    a[1, 50, 2] = bad
    for mine, expected in zip(factored(a), clean, strict=True):
        assert not mine[1].isfinite().all()
        assert torch.equal(mine[::2], expected)


# --- the rule of signs, in float64


def signs_by_kernel(q: Tensor, r: Tensor, reflected: Tensor) -> tuple[Tensor, Tensor]:
    """What the kernel finds for Q's first rows and R, (n, n); its own level reflects nothing."""
    n, ld = q.shape[0], 64
    work, top = q.new_zeros(1, n, ld), q.new_zeros(1, n, ld)
    top[0, :, :n] = r
    signs, out = q.new_empty(n), q.new_empty(n, n).mT
    qrprof_orgqr_signs[(1,)](
        work, q.new_zeros(ld, ld), q.contiguous(), top, torch.zeros(1, ld, dtype=torch.int32), reflected, signs, out,
        n, n, 1, n, ld, 1, N=tall.side(n), W=ld, PRECISION="ieee", num_warps=4,
    )  # fmt: skip
    return signs, out


def tall_and_random(m: int, n: int) -> Tensor:
    return torch.randn(m, n, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def almost_dependent(m: int, n: int) -> Tensor:
    a = tall_and_random(m, n)
    a[:, 1::2] = a[:, ::2] + 1e-7 * a[:, 1::2]
    return a


def falling_rows(m: int, n: int) -> Tensor:
    return tall_and_random(m, n) * torch.logspace(0, -12, m, dtype=torch.float64)[:, None]


def tiny_top(m: int, n: int) -> Tensor:
    a = tall_and_random(m, n)
    a[:n] *= 1e-6
    return a


def close_to_upper(m: int, n: int) -> Tensor:
    return tall_and_random(m, n).triu() + 1e-13 * tall_and_random(m, n)


@pytest.mark.parametrize("made", [tall_and_random, almost_dependent, falling_rows, tiny_top, close_to_upper])
@pytest.mark.parametrize("n", [1, 16, 40])
def test_any_signs_become_lapacks(made: Callable[[int, int], Tensor], n: int) -> None:
    a = made(3000, n)
    q, r = torch.linalg.qr(a)
    flips = torch.randn(n, generator=torch.Generator().manual_seed(4)).sign().double()
    signs, signed = signs_by_kernel(q[:n] * flips, r * flips[:, None], torch.ones(n, dtype=torch.float64))
    assert torch.equal(signs, flips)
    assert torch.equal(signed, r)


def test_where_alpha_is_zero_beta_is_negative() -> None:
    q, r = torch.zeros(3, 3, dtype=torch.float64), torch.diag(torch.tensor([2.0, -3.0, 4.0], dtype=torch.float64))
    _, signed = signs_by_kernel(q, r, torch.ones(3, dtype=torch.float64))
    assert signed.diagonal().tolist() == [-2, -3, -4]


def test_a_column_keeps_its_sign_where_nothing_was_reflected_and_q_says_so_too() -> None:
    q = torch.diag(torch.tensor([1.0, 1.0, 0.5], dtype=torch.float64))
    signs, _ = signs_by_kernel(q, torch.eye(3, dtype=torch.float64), torch.tensor([0.0, 1.0, 0.0]).double())
    assert signs.tolist() == [1, -1, -1]
