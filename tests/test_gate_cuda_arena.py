"""The driver calls behind memory that two processes see on a GPU, with a driver that only takes notes."""

import ctypes
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from qrprof.planner.gate import arena, cuda_arena
from qrprof.planner.gate.cuda_arena import CudaArena, whole_granules

GRANULE = 2 << 20
HANDLE, ADDRESS, INVALID = 77, 0x7000_0000_0000, 1


class Driver:
    """Notes each call; a call named in `failing` returns an error."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failing: set[str] = set()
        self.exported = os.memfd_create("block")

    def __getitem__(self, name: str) -> Callable[..., int]:
        def function(*args: Any) -> int:
            self.calls.append(name)
            if name in self.failing:
                return INVALID
            results = {
                "cuMemGetAllocationGranularity": GRANULE,
                "cuMemCreate": HANDLE,
                "cuMemExportToShareableHandle": self.exported,
                "cuMemImportFromShareableHandle": HANDLE,
                "cuMemAddressReserve": ADDRESS,
            }
            if name in results:
                args[0]._obj.value = results[name]
            return 0

        return function

    def cuGetErrorName(self, error: int, text: Any) -> None:
        text._obj.value = b"CUDA_ERROR_INVALID_VALUE"


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(cuda_arena, "driver", lambda: driver)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return driver


def test_the_drivers_records_have_the_drivers_sizes() -> None:
    assert ctypes.sizeof(cuda_arena.Properties) == 32
    assert ctypes.sizeof(cuda_arena.Access) == 12


def test_sizes_are_whole_granules(driver: Driver) -> None:
    assert [whole_granules(size) for size in (1, GRANULE, GRANULE + 1)] == [GRANULE, GRANULE, 2 * GRANULE]


def test_a_block_that_is_made_is_mapped_and_let_go_of_in_the_end(driver: Driver) -> None:
    made = CudaArena.made(5)
    assert (made.size, made.address) == (GRANULE, ADDRESS)
    assert driver.calls[-6:] == [
        "cuMemCreate",
        "cuMemExportToShareableHandle",
        "cuMemAddressReserve",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemRelease",
    ]
    del made
    assert driver.calls[-2:] == ["cuMemUnmap", "cuMemAddressFree"]
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(driver.exported)


@pytest.mark.parametrize(
    "failing", ["cuMemImportFromShareableHandle", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"]
)
def test_what_is_no_block_is_refused_and_everything_is_let_go_of(driver: Driver, failing: str) -> None:
    driver.failing = {failing}
    with pytest.raises(ValueError, match=f"{failing}: CUDA_ERROR_INVALID_VALUE"):
        arena.attach(driver.exported, GRANULE, "cuda")
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(driver.exported)
    assert driver.calls.count("cuMemAddressReserve") == driver.calls.count("cuMemAddressFree") + (
        failing == "cuMemAddressReserve"
    )
    assert driver.calls.count("cuMemRelease") == (failing != "cuMemImportFromShareableHandle")


def test_a_block_that_cannot_be_made_says_why(driver: Driver) -> None:
    driver.failing = {"cuMemCreate"}
    with pytest.raises(RuntimeError, match="cuMemCreate: CUDA_ERROR_INVALID_VALUE"):
        CudaArena.made(1)
