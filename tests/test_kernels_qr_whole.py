"""Which batches of matrices are factored whole, by their number and the device, and what the kernel is told of them.

What it gives is tested on a GPU.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from qrprof.kernels.qr import blocked, gpu, whole
from qrprof.kernels.qr.configs import SM90, Whole
from qrprof.profiler.phases import pattern_of

H200 = torch.device("cuda", 0)
ONE = Whole(rows=512, filled=0.25, forming=0.5, warps=8, slots=4, cluster=1)
TWO = Whole(rows=1024, filled=0.25, forming=0.5, warps=8, slots=4, cluster=2)


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An H200: what of it is asked for."""
    has = SimpleNamespace(multi_processor_count=132, shared_memory_per_block_optin=227 * 1024)
    monkeypatch.setattr(whole, "properties", lambda device: has)
    return has


@pytest.mark.parametrize(
    ("config", "forms", "least"),
    [(ONE, False, 33), (ONE, True, 66), (TWO, False, 17), (TWO, True, 33)],  # of 132 places, or 66 of two blocks
)
def test_a_round_that_is_full_enough(config: Whole, forms: bool, least: int) -> None:
    one = replace(SM90, whole=(config,))

    def serves(batch: int) -> bool:
        return whole.setting(one, batch, config.rows, config.rows, H200, forms=forms) is not None

    assert not serves(least - 1)
    assert all(serves(batch) for batch in (least, 132, 133, 640))  # a second round is faster whatever it holds


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ((40, 176, 176), 192),
        ((40, 352, 352), 384),
        ((640, 512, 512), 512),
        ((60, 1024, 1024), 1024),
        ((40, 512, 512), 512),
        ((13, 512, 512), None),
        ((8, 2048, 2048), None),
        ((640, 40, 200), None),  # far wider than high
    ],
)
def test_the_contests_cases_up_to_1024_rows_are(shape: tuple[int, int, int], rows: int | None) -> None:
    found = whole.setting(SM90, *shape, H200)
    assert (found.rows if found else None) == rows


def test_not_where_a_block_has_too_little_shared_memory(device: SimpleNamespace) -> None:
    device.shared_memory_per_block_optin = 99 * 1024
    assert whole.setting(SM90, 640, 512, 512, H200) is None


@pytest.mark.parametrize("one", SM90.whole, ids=lambda one: str(one.rows))
def test_a_setting_holds_its_rows(one: Whole) -> None:
    assert whole.GROUP * one.slots * one.warps * one.cluster >= one.rows


@pytest.mark.parametrize(
    ("shape", "mode", "rows"),
    [
        ((640, 512, 512), "reduced", 512),
        ((20, 32, 512, 512), "reduced", 512),
        ((40, 176, 176), "complete", 192),  # square: the same as reduced
        ((40, 100, 176), "complete", 128),
        ((40, 176, 100), "complete", None),  # more columns of Q than reflectors
        ((640, 512, 512), "r", 512),
        ((40, 48, 40), "reduced", 128),  # too small for geqrf, which a Triton program does alone
        ((20, 32, 32), "reduced", None),
        ((26, 512, 512), "reduced", None),  # blocks are faster than a fifth of a round
    ],
)
def test_which_calls_of_linalg_qr_are(
    shape: tuple[int, ...], mode: str, rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocked, "config_of", lambda device: SM90)
    found = gpu.whole_of.__wrapped__(H200, torch.Size(shape), mode)
    assert (found.rows if found else None) == rows


@pytest.mark.parametrize("form", [False, True])
@pytest.mark.parametrize("size", [(300, 7, 5), (3, 5, 7)])
def test_what_a_launch_is_told(form: bool, size: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes H and tau, or R and Q, column-major, and scratch for the matrices in work at a time."""
    told: dict[str, Any] = {}

    def kernel(config: Whole, device: torch.device, *, form: bool) -> Any:
        return lambda *launch: told.update(form=form, launch=launch)

    monkeypatch.setattr(whole, "kernel", kernel)
    (batch, m, n), k = size, min(size[1:])
    a = torch.zeros(batch, n, m).mT
    results = whole.qr(a, TWO) if form else whole.factor(a, TWO)
    stock = torch.linalg.qr(a) if form else torch.geqrf(a)
    assert [(x.shape, x.stride()) for x in results] == [(x.shape, x.stride()) for x in stock]
    grid, block, (given, upper, others, scratch, *numbers), shared = told["launch"]
    assert told["form"] == form
    assert (grid, block, shared) == ((2 * min(batch, 66), 1, 1), (256, 1, 1), whole.shared_bytes(TWO))
    assert numbers == [batch, m, n, m * n, 1, m]
    assert given is a
    assert (upper is results[form], others is results[not form]) == (True, True)
    assert scratch.numel() == grid[0] * -(-k // 32) * whole.reflectors_bytes(TWO)


def test_a_trace_tells_whether_q_was_formed() -> None:
    assert pattern_of(whole.NAME).phase == "geqr2+larft+larfb"
    assert pattern_of(whole.FORMS).phase == "geqr2+larft+larfb+orgqr"
