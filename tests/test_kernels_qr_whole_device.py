"""Matrices factored whole in one launch, and Q formed, on a GPU: every setting right on every input, size and batch."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from types import SimpleNamespace
from typing import Any, Final

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from qr_device import factors_strictly, made, matrices, same_bits, same_layout

from qrprof.kernels import structures
from qrprof.kernels.capture import captured
from qrprof.kernels.checks import residuals, residuals_qr, strict
from qrprof.kernels.qr import gpu, whole
from qrprof.kernels.qr.configs import SM90, Whole

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

WHOLE: Final = dict(zip(map(str, (one.rows for one in SM90.whole)), SM90.whole, strict=True))
SIZES: Final = ((0, 0), (-1, -1), (-3, -40), (-2, 70), (-16, -65))  # against the most rows


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """At the same time: NVRTC takes seconds for each."""
    with ThreadPoolExecutor() as threads:
        list(threads.map(compile_one, *zip(*product(SM90.whole, (False, True)), strict=True)))


def compile_one(one: Whole, form: bool) -> None:
    device = torch.zeros(1, device="cuda").device  # the thread has a context from here on
    whole.kernel(one, device, form=form)


def whole_by(one: Whole) -> Any:
    """Matrices factored whole by this setting, however many they are."""
    return SimpleNamespace(geqrf=lambda a: whole.factor(a, one))


def decomposes_strictly(one: Whole, a: Tensor) -> None:
    found, stock = whole.qr(a, one), torch.linalg.qr(a)
    same_layout(found, stock)
    verdict = strict(residuals_qr(a, *found), residuals_qr(a, *stock))
    assert verdict.passed, f"qr: {verdict}"


@pytest.mark.parametrize("rows", WHOLE)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_setting_of_whole_matrices(rows: str, size: tuple[int, int]) -> None:
    one, m, n = WHOLE[rows], int(rows) + size[0], int(rows) + size[1]
    for a in (matrices(3, m, n), matrices(3, m, n + 1)[..., 1:], matrices(n, m, 2).permute(2, 1, 0)):
        factors_strictly(whole_by(one), a)
        decomposes_strictly(one, a)


@pytest.mark.parametrize("rows", WHOLE)
@pytest.mark.parametrize("structure", structures.CASES)
def test_every_structure_by_every_setting_of_whole_matrices(rows: str, structure: str) -> None:
    a = made(structure, 4, int(rows) - 8, int(rows) - 12)
    factors_strictly(whole_by(WHOLE[rows]), a)
    decomposes_strictly(WHOLE[rows], a)


@pytest.mark.parametrize("rows", WHOLE)
@pytest.mark.parametrize("size", [(33, 1), (37, 37), (100, 40), (40, 100), (128, 33)], ids=str)
def test_small_matrices_by_every_setting_and_several_rounds(rows: str, size: tuple[int, int]) -> None:
    """A block takes one matrix after the other: each as if it were alone."""
    a = matrices(300, *size)
    found, formed = whole.factor(a, WHOLE[rows]), whole.qr(a, WHOLE[rows])
    verdict = strict(residuals(a, *found), residuals(a, *torch.geqrf(a)))
    assert verdict.passed, str(verdict)
    verdict = strict(residuals_qr(a, *formed), residuals_qr(a, *torch.linalg.qr(a)))
    assert verdict.passed, str(verdict)
    for place in (0, 131, 132, 299):
        one = a[place : place + 1]
        assert same_bits([x[place : place + 1] for x in found], whole.factor(one, WHOLE[rows]))
        assert same_bits([x[place : place + 1] for x in formed], whole.qr(one, WHOLE[rows]))


def test_columns_of_all_sizes_in_whole_matrices() -> None:
    """Zero, denormal, huge and repeated columns; a column that infinity spoils."""
    a = matrices(12, 180, 96)
    a *= torch.logspace(-37, 37, 96, device="cuda")
    a[:, :, 5] = 0.0
    a[:, :, 7] = a[:, :, 6]
    a[:, :, 9] = 1e-42
    a[:, 1:, 11] = 0.0
    for one in SM90.whole[1:]:
        factors_strictly(whole_by(one), a)
        decomposes_strictly(one, a)
    spoilt = a.clone()
    spoilt[3, 17, 20], spoilt[4, 100, 90] = float("inf"), float("nan")
    others = [0, 1, 2, *range(5, 12)]
    for one, of in product(SM90.whole[1:], (whole.factor, whole.qr)):
        clean, found = of(a, one), of(spoilt, one)
        assert same_bits([x[others] for x in found], [x[others] for x in clean])
        assert not any(bool(found[0][place].isfinite().all()) for place in (3, 4))


@pytest.mark.parametrize("rows", WHOLE)
def test_r_is_that_of_geqrf_and_zero_below(rows: str) -> None:
    a = matrices(5, int(rows) - 5, int(rows) - 70)
    h, _ = whole.factor(a, WHOLE[rows])
    assert same_bits(whole.qr(a, WHOLE[rows])[1:], [h[:, : h.shape[2]].triu()])


@pytest.mark.parametrize("rows", WHOLE)
def test_the_same_bits_each_time_and_in_a_graph(rows: str) -> None:
    a = matrices(140, int(rows) - 1, 200)
    found = whole.qr(a, WHOLE[rows])
    assert all(same_bits(whole.qr(a, WHOLE[rows]), found) for _ in range(5))
    graph, replayed = captured(lambda: whole.qr(a, WHOLE[rows]), a.device)
    a.copy_(matrices(140, int(rows) - 1, 200, seed=1))
    expected = whole.qr(a, WHOLE[rows])
    for _ in range(3):
        graph.replay()
        assert same_bits(replayed, expected)


@pytest.mark.parametrize("shape", [(132, 512, 512), (2, 66, 300, 500), (40, 352, 1), (140, 48, 40), (48, 40)], ids=str)
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_linalg_qr_by_one_launch(shape: tuple[int, ...], mode: str) -> None:
    a = matrices(*shape)
    found, stock = gpu.qr(a, mode), torch.linalg.qr(a, mode)
    same_layout(found, stock)
    if mode == "r":
        assert same_bits(found[1:], gpu.qr(a, "reduced")[1:])
    else:
        verdict = strict(residuals_qr(a, *found), residuals_qr(a, *stock))
        assert verdict.passed, str(verdict)
