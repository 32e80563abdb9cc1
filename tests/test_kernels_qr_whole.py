"""Which batches of matrices are factored whole, by their number and the device; what they give is tested on a GPU."""

from types import SimpleNamespace

import pytest
import torch

from qrprof.kernels.qr import whole
from qrprof.kernels.qr.configs import SM90, Whole

H200 = torch.device("cuda", 0)
ONE = Whole(rows=512, filled=0.25, warps=8, slots=4, cluster=1)
TWO = Whole(rows=1024, filled=0.25, warps=8, slots=4, cluster=2)


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An H200: what of it is asked for."""
    properties = SimpleNamespace(multi_processor_count=132, shared_memory_per_block_optin=227 * 1024)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    return properties


@pytest.mark.parametrize(
    ("config", "batch", "expected"),
    [
        (ONE, 32, False),
        (ONE, 33, True),  # a quarter of 132 places
        (ONE, 132, True),
        (ONE, 133, False),  # the second round would take as long for one as for 132
        (ONE, 237, False),
        (ONE, 238, True),  # nine tenths of two rounds
        (ONE, 640, True),
        (TWO, 16, False),
        (TWO, 17, True),  # two blocks each: 66 places
        (TWO, 66, True),
        (TWO, 67, False),
        (TWO, 119, True),
    ],
)
def test_rounds_that_are_full_enough(config: Whole, batch: int, expected: bool) -> None:
    assert whole.gains(config, batch, 132) == expected


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ((40, 176, 176), 192),
        ((40, 352, 352), 384),
        ((640, 512, 512), 512),
        ((60, 1024, 1024), 1024),
        ((40, 512, 512), None),
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
