"""The inputs of the QR kernels: what each structure promises, for square, tall and wide matrices."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from qrprof.kernels import contest
from qrprof.kernels.structures import CASES, MIXTURE, make

SHAPES = ((64, 64), (96, 40), (40, 96))
DTYPES = (torch.float32, torch.float64)
EPS = torch.finfo(torch.float32).eps


def made(case: str, m: int = 64, n: int = 64, batch: int = 3, cond: float = 0, seed: int = 7) -> Tensor:
    return make(case, batch, m, n, cond=cond, seed=seed, device="cpu")


def column_norms(a: Tensor) -> Tensor:
    return a.double().square().sum(-2).sqrt()


@given(
    case=st.sampled_from(CASES),
    batch=st.integers(0, 3),
    m=st.integers(0, 9),
    n=st.integers(0, 9),
    cond=st.sampled_from((0, 1, 4)),
    dtype=st.sampled_from(DTYPES),
)
def test_any_shape_is_made_whole(case: str, batch: int, m: int, n: int, cond: float, dtype: torch.dtype) -> None:
    a, again, other = (make(case, batch, m, n, cond=cond, seed=s, device="cpu", dtype=dtype) for s in (5, 5, 6))
    assert a.shape == (batch, m, n)
    assert a.dtype == dtype
    assert a.is_contiguous()
    assert torch.equal(a.nan_to_num(-1), again.nan_to_num(-1))
    if a.numel() and case != "zero":
        assert case in ("diagonal", "single_bad") or not torch.equal(a, other)
        assert case == "single_bad" or bool(a.isfinite().all())


def test_a_case_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(ValueError, match="no structure 'densse': one of dense, upper"):
        made("densse")


@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_columns_of_dense_fall_off_by_cond_decades(m: int, n: int) -> None:
    flat, steep = made("dense", m, n), made("dense", m, n, cond=2)
    ratio = (steep / flat).double()
    assert torch.allclose(ratio[..., 0], torch.ones(1, dtype=torch.float64))
    assert torch.allclose(ratio[..., -1], torch.full((1,), 1e-2, dtype=torch.float64))


@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_upper_diagonal_and_band_are_zero_where_they_should_be(m: int, n: int) -> None:
    distance = torch.arange(n) - torch.arange(m).unsqueeze(-1)
    assert not made("upper", m, n)[:, distance < 0].any()
    assert not made("diagonal", m, n)[:, distance != 0].any()
    assert not made("band", m, n)[:, distance.abs() > 3].any()
    assert made("band", m, n)[:, distance.abs() == 2].all()


def test_diagonal_has_both_signs_and_two_decades_at_least() -> None:
    values = made("diagonal").diagonal(dim1=-2, dim2=-1)
    assert values[:, 0].abs().tolist() == [1, 1, 1]
    assert torch.allclose(values[:, -1].abs(), torch.tensor(1e-2))
    assert 0.2 < (values < 0).float().mean() < 0.8


@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_ranks(m: int, n: int) -> None:
    rank = 3 * min(m, n) // 4
    for a in made("rankdef", m, n):
        assert int(torch.linalg.matrix_rank(a)) == rank
        assert not a[:, rank:].any()
    for a in made("nearrank", m, n).double():
        values = torch.linalg.svdvals(a)
        assert values[rank] < 1e-3 < values[rank - 1]
        assert (a[:, rank] - a[:, 0]).abs().max() < 1e-4
    for a in made("repeated", m, n):
        assert (a == a[:, :1]).all()


def test_clustered_has_three_sizes_of_columns() -> None:
    norms = column_norms(made("clustered", cond=2)) / 8
    assert norms[:, :30].min() > 0.5
    assert torch.allclose(norms[:, 30:34] / EPS**0.5, torch.ones(1, dtype=torch.float64), rtol=0.5)
    assert torch.allclose(norms[:, 34:] / (4 * EPS), torch.ones(1, dtype=torch.float64), rtol=0.5)


def test_rows_of_rowscale_fall_off_by_four_decades_at_least() -> None:
    ratio = made("rowscale", 96, 40, cond=1) / made("dense", 96, 40)
    assert torch.allclose(ratio[:, 0], torch.tensor(1.0))
    assert torch.allclose(ratio[:, -1], torch.tensor(1e-4))


def test_columns_of_nearcollinear_differ_by_noise() -> None:
    a = made("nearcollinear")
    spread = (a - a.mean(-1, keepdim=True)).std(-1)
    assert 5e-5 < spread.min() < spread.max() < 2e-4


@pytest.mark.parametrize("seed", range(20))
def test_mixed_has_dense_and_other_matrices_from_two_on(seed: int) -> None:
    a = made("mixed", 32, 32, batch=2, seed=seed)
    dense = (a == made("dense", 32, 32, batch=2, seed=seed)).all(-1).all(-1)
    assert dense.any()
    assert not dense.all()


def test_half_of_a_large_mixed_batch_is_dense() -> None:
    a, dense = (made(case, 16, 16, batch=400) for case in ("mixed", "dense"))
    assert 0.4 < (a == dense).all(-1).all(-1).float().mean() < 0.6
    assert sum(MIXTURE.values()) == 12


def test_single_bad_has_one_bad_number_and_is_dense_elsewhere() -> None:
    bad = [~made("single_bad", batch=5, seed=seed).isfinite() for seed in range(12)]
    assert [int(b.sum()) for b in bad] == [1] * 12
    assert len({int(b.flatten().int().argmax()) for b in bad}) > 6
    found = torch.cat([made("single_bad", batch=5, seed=seed)[b] for seed, b in enumerate(bad)])
    assert found.isnan().any()
    assert found.isinf().any()
    good = ~bad[0]
    assert torch.equal(made("single_bad", batch=5, seed=0)[good], made("dense", batch=5, seed=0)[good])


@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes_at_the_ends_of_the_range(dtype: torch.dtype) -> None:
    huge, denormal, tiny = (
        make(case, 3, 64, 64, cond=0, seed=1, device="cpu", dtype=dtype) for case in ("huge", "denormal", "tiny_column")
    )
    info = torch.finfo(dtype)
    assert huge.abs().max() > info.max / 100
    assert not huge.square().isfinite().all()
    assert 0 < denormal.abs().max() < info.smallest_normal
    is_tiny = (tiny.abs() < info.smallest_normal).all(-2)
    assert is_tiny.sum(-1).tolist() == [1, 1, 1]
    assert (tiny != 0).all()
    assert len({int(row.int().argmax()) for row in is_tiny}) > 1


def test_the_contest_has_12_benchmarks_and_22_tests() -> None:
    assert len(contest.BENCHMARKS) == 12
    assert len(contest.TESTS) == len({case.seed for case in contest.TESTS}) == 22
    assert {case.structure for case in (*contest.BENCHMARKS, *contest.TESTS)} <= set(CASES)
    assert sum(case.batch * case.n**2 for case in contest.BENCHMARKS) * 4 // 2**20 == 3559
    assert contest.BENCHMARKS[3].label == "640x512 dense"


def test_a_case_of_the_contest_makes_its_input_and_fresh_ones() -> None:
    case = contest.BENCHMARKS[0]
    a, other = case.make("cpu"), case.make("cpu", fresh=42)
    assert a.shape == (20, 32, 32)
    assert torch.equal(a, make("dense", 20, 32, 32, cond=1, seed=43214, device="cpu"))
    assert not torch.equal(a, other)
