"""Matrices factored whole in one launch, on a GPU: every setting right on every kind of input, size and batch."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Final

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from qr_device import factors_strictly, made, matrices, same_bits

from qrprof.kernels import structures
from qrprof.kernels.checks import residuals, strict
from qrprof.kernels.qr import whole
from qrprof.kernels.qr.configs import SM90, Whole

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

WHOLE: Final = dict(zip(map(str, (one.rows for one in SM90.whole)), SM90.whole, strict=True))
SIZES: Final = ((0, 0), (-1, -1), (-3, -40), (-2, 70), (-16, -65))  # against the most rows


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """At the same time: NVRTC takes seconds for each."""
    with ThreadPoolExecutor() as threads:
        list(threads.map(compile_one, SM90.whole))


def compile_one(one: Whole) -> None:
    device = torch.zeros(1, device="cuda").device  # the thread has a context from here on
    whole.kernel(one, device)


def whole_by(one: Whole) -> Any:
    """Matrices factored whole by this setting, however many they are."""
    return SimpleNamespace(geqrf=lambda a: whole.factor(a, one))


@pytest.mark.parametrize("rows", WHOLE)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_setting_of_whole_matrices(rows: str, size: tuple[int, int]) -> None:
    one, m, n = WHOLE[rows], int(rows) + size[0], int(rows) + size[1]
    for a in (matrices(3, m, n), matrices(3, m, n + 1)[..., 1:], matrices(n, m, 2).permute(2, 1, 0)):
        factors_strictly(whole_by(one), a)


@pytest.mark.parametrize("rows", WHOLE)
@pytest.mark.parametrize("structure", structures.CASES)
def test_every_structure_by_every_setting_of_whole_matrices(rows: str, structure: str) -> None:
    factors_strictly(whole_by(WHOLE[rows]), made(structure, 4, int(rows) - 8, int(rows) - 12))


@pytest.mark.parametrize("rows", WHOLE)
@pytest.mark.parametrize("size", [(33, 1), (37, 37), (100, 40), (40, 100), (128, 33)], ids=str)
def test_small_matrices_by_every_setting_and_several_rounds(rows: str, size: tuple[int, int]) -> None:
    """A block takes one matrix after the other: each as if it were alone."""
    a = matrices(300, *size)
    found = whole.factor(a, WHOLE[rows])
    verdict = strict(residuals(a, *found), residuals(a, *torch.geqrf(a)))
    assert verdict.passed, str(verdict)
    for place in (0, 131, 132, 299):
        assert same_bits([x[place : place + 1] for x in found], whole.factor(a[place : place + 1], WHOLE[rows]))


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
    spoilt = a.clone()
    spoilt[3, 17, 20], spoilt[4, 100, 90] = float("inf"), float("nan")
    for one in SM90.whole[1:]:
        clean, found = whole.factor(a, one), whole.factor(spoilt, one)
        others = [0, 1, 2, *range(5, 12)]
        assert same_bits([x[others] for x in found], [x[others] for x in clean])
        assert not any(bool(found[0][place].isfinite().all()) for place in (3, 4))
