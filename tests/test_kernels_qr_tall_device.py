"""QR of tall matrices on a GPU: right on every kind of input, size and stride, and the same bits every time."""

from collections.abc import Iterator
from typing import Final

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
pytest.importorskip("triton")

from qr_device import made, matrices, same_bits, same_layout

from qrprof.kernels import qr, structures
from qrprof.kernels.checks import residuals_qr, strict
from qrprof.kernels.qr import gpu, lanes, postcheck

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

ASKED: Final = ((16384, 64), (65536, 32), (1 << 20, 16))
OTHERS: Final = (
    *((4097, 1), (4097, 64), (4100, 7), (5000, 33), (8192, 32), (12345, 17), (100_000, 48), (300_001, 5)),
    *((2, 8192, 64), (8, 5000, 8), (2, 2, 40_000, 16)),
)
LEVELS: Final = ((2, 9000, 24), (2, 9000, 50), (2, 70_000, 12))  # one leaf, two; three levels


def decomposes_strictly(a: Tensor) -> None:
    assert lanes.lane_of_qr(a, "reduced") == "cuda-tall"
    found, stock = qr.qr(a), torch.linalg.qr(a)
    same_layout(found, stock)
    verdict = strict(residuals_qr(a, *found), residuals_qr(a, *stock))
    assert verdict.passed, str(verdict)


@pytest.fixture
def by_tf32() -> Iterator[None]:
    kept = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = kept


@pytest.mark.parametrize("shape", [*ASKED, *OTHERS], ids=str)
def test_sizes(shape: tuple[int, ...]) -> None:
    decomposes_strictly(matrices(*shape))


@pytest.mark.parametrize("shape", [*ASKED, *OTHERS], ids=str)
def test_values_and_signs_are_torchs(shape: tuple[int, ...]) -> None:
    a = matrices(*shape)
    (q, r), (stock_q, stock_r) = qr.qr(a), torch.linalg.qr(a)
    torch.testing.assert_close(q, stock_q, rtol=0, atol=1e-5)
    torch.testing.assert_close(r, stock_r, rtol=0, atol=1e-5 * shape[-2] ** 0.5)


@pytest.mark.parametrize("shape", LEVELS, ids=str)
@pytest.mark.parametrize("structure", structures.CASES)
def test_every_structure_is_factored_as_well_as_stock(structure: str, shape: tuple[int, int, int]) -> None:
    decomposes_strictly(made(structure, *shape))


@pytest.mark.parametrize("shape", LEVELS, ids=str)
def test_columns_of_all_sizes(shape: tuple[int, int, int]) -> None:
    """Zero, denormal, huge and repeated columns, and rows of zeros before and after."""
    a = matrices(*shape)
    a[0] *= torch.logspace(-37, 35, shape[2], device="cuda")
    a[0, :, 5] = 0.0
    a[0, :, 7] = a[0, :, 6]
    a[0, :, 9] = 1e-42
    a[1, :2000] = 0.0
    a[1, -3000:] = 0.0
    decomposes_strictly(a)


def test_nothing_to_reflect() -> None:
    a = matrices(2, 9000, 24).triu()
    a[1] = 0.0
    q, r = qr.qr(a)
    assert torch.equal(q, torch.eye(9000, 24, device="cuda").expand(2, -1, -1))
    assert torch.equal(r, a[:, :24])


@pytest.mark.parametrize("shape", LEVELS, ids=str)
def test_strides_do_not_matter(shape: tuple[int, int, int]) -> None:
    a = matrices(*shape)
    batch, m, n = shape
    apart, shifted = a.new_zeros(batch, m, 2 * n), a.new_zeros(a.numel() + 1)
    apart[..., ::2] = a
    shifted[1:] = a.flatten()
    expected = gpu.qr(a, "reduced")
    for same in (
        a.mT.contiguous().mT,
        apart[..., ::2],
        torch.stack([a, a + 1], 1)[:, 0],
        a.permute(1, 2, 0).contiguous().permute(2, 0, 1),
        shifted[1:].view(shape),
    ):
        assert same_bits(gpu.qr(same, "reduced"), expected)
    alike = gpu.qr(a[:1].expand(shape), "reduced")
    assert all(torch.equal(x[0], x[1]) for x in alike)


@pytest.mark.parametrize("shape", [*ASKED, *LEVELS], ids=str)
def test_r_alone_and_all_of_q(shape: tuple[int, ...]) -> None:
    a = matrices(*shape)
    found = qr.qr(a, "r")
    same_layout(found, torch.linalg.qr(a, "r"))
    assert same_bits(found[1:], qr.qr(a)[1:])
    assert lanes.lane_of_qr(a, "complete") == "torch"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("shape", LEVELS, ids=str)
def test_one_bad_matrix_leaves_the_other_as_it_is(shape: tuple[int, int, int], bad: float) -> None:
    a = matrices(*shape)
    clean = qr.qr(a)
    a[1, 8000, 3] = bad
    for mine, expected in zip(qr.qr(a), clean, strict=True):
        assert same_bits([mine[:1]], [expected[:1]])
        assert not mine[1].isfinite().all()


@pytest.mark.parametrize("shape", [*ASKED, *LEVELS], ids=str)
def test_the_same_bits_every_time(shape: tuple[int, ...]) -> None:
    """As it is, captured and replayed; results are the caller's."""
    a, b = matrices(*shape), matrices(*shape, seed=1)
    given = a.clone()
    first = qr.qr(a)
    kept = [x.clone() for x in first]
    for _ in range(3):
        qr.qr(b)
        assert same_bits(qr.qr(a), kept)
    assert same_bits(first, kept)
    assert torch.equal(a, given)


@pytest.mark.parametrize("shape", [*ASKED, *LEVELS], ids=str)
def test_in_a_graph_that_is_replayed_on_other_contents(shape: tuple[int, ...]) -> None:
    a = matrices(*shape)
    qr.qr(a)  # compiled by now
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = qr.qr(a)
    other = matrices(*shape, seed=1)
    a.copy_(other)
    graph.replay()
    assert same_bits(found, qr.qr(other))


@pytest.mark.parametrize("shape", [*ASKED, *LEVELS], ids=str)
def test_products_are_float32s_whatever_the_user_allows(by_tf32: None, shape: tuple[int, ...]) -> None:
    decomposes_strictly(matrices(*shape))


@pytest.mark.parametrize("shape", [*ASKED, *OTHERS], ids=str)
def test_the_check_of_a_swap_passes_and_sees_a_wrong_q(shape: tuple[int, ...]) -> None:
    a = matrices(*shape)
    q, r = qr.qr(a)
    assert postcheck.qr(0, (q, r), a)
    q = q.clone()
    q[..., 0] *= 1 + 1e-3
    assert not postcheck.qr(0, (q, r), a)
