"""A launch of a CUDA C++ kernel, as the driver gets it: here a library that keeps what it is told."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Final

import pytest
import torch
import torch.cuda._utils

from qrprof.kernels.qr import cuda, launch
from qrprof.kernels.qr.layout import column_major

FUNCTION, CONTEXT, STREAM = 2**40 + 1, 2**41 + 2, 2**42 + 3  # more than an int
GRID: Final = (70_000, 2, 3)
BLOCK: Final = (128, 4, 1)
DEVICE: Final = torch.device("cuda", 1)
INVALID_VALUE: Final = 1
KERNEL: Final = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)  # what it takes
LAUNCH: Final = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p,
)  # fmt: skip


class Driver:
    """A thread's current context is in `contexts`; `before` runs between a launch and the reading of its arguments."""

    def __init__(self) -> None:
        self.launched: list[Any] = []
        self.contexts = threading.local()
        self.before: Callable[[], object] = lambda: None
        self.result = 0
        self.entry = LAUNCH(self.launch)  # C's way in, to be called as a function of a library is
        self.cuLaunchKernel = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.cast(self.entry, ctypes.c_void_p).value or 0)

    def launch(self, function: int, *rest: Any) -> int:
        *sizes, stream, addresses, extra = rest
        if self.contexts.__dict__.get("current") != CONTEXT:
            return launch.NO_CONTEXT
        self.before()
        taken: list[Any] = [kind.from_address(addresses[place]) for place, kind in enumerate(KERNEL)]
        self.launched.append((function, *sizes, stream, [one.value for one in taken], extra))
        return self.result

    def cuCtxGetCurrent(self, context: Any) -> int:
        context._obj.value = CONTEXT
        return 0

    def cuCtxSetCurrent(self, context: ctypes.c_void_p) -> int:
        self.contexts.current = context.value
        return 0

    def cuGetErrorString(self, result: int, text: Any) -> int:
        text._obj.value = {INVALID_VALUE: b"invalid argument", launch.NO_CONTEXT: b"invalid device context"}[result]
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    made = Driver()
    made.contexts.current = CONTEXT
    monkeypatch.setattr(torch.cuda._utils, "_get_gpu_runtime_library", lambda: made)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: DEVICE.index)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", {DEVICE.index: STREAM}.__getitem__, raising=False)
    launch.driver.cache_clear()
    yield made
    launch.driver.cache_clear()


@pytest.fixture
def kernel(driver: Driver) -> Callable[..., None]:
    return launch.launcher(SimpleNamespace(func=ctypes.c_void_p(FUNCTION)))


def test_arguments_are_addresses_and_behind_them_eight_bytes_each() -> None:
    a = torch.zeros(3)
    found = launch.packed([a, 7, a[1:], -2])
    values = ctypes.addressof(found) + 32
    expected = [*range(values, values + 32, 8), a.data_ptr(), 7, a.data_ptr() + 4, 2**64 - 2]
    assert bytes(found) == b"".join(number.to_bytes(8, "little") for number in expected)


def test_the_driver_gets_all_of_a_launch(driver: Driver, kernel: Callable[..., None]) -> None:
    a = torch.zeros(3)
    kernel(GRID, BLOCK, [a, 2**31 - 1, -5], 200_000)
    kernel(GRID, BLOCK, [a, 0, 1])
    first, second = ([a.data_ptr(), 2**31 - 1, -5], [a.data_ptr(), 0, 1])
    assert driver.launched == [
        (FUNCTION, *GRID, *BLOCK, 200_000, STREAM, first, None),
        (FUNCTION, *GRID, *BLOCK, 0, STREAM, second, None),
    ]


def test_what_the_driver_refuses_is_an_error_in_its_words(driver: Driver, kernel: Callable[..., None]) -> None:
    driver.result = INVALID_VALUE
    with pytest.raises(RuntimeError, match=r"^CUDA error: invalid argument$"):
        kernel(GRID, BLOCK, [torch.zeros(1), 0, 0])
    assert len(driver.launched) == 1


def test_a_thread_without_a_context_gets_the_kernels(driver: Driver, kernel: Callable[..., None]) -> None:
    with ThreadPoolExecutor(1) as thread:
        thread.submit(kernel, GRID, BLOCK, [torch.zeros(1), 3, 4]).result()
    assert [one[-2][1:] for one in driver.launched] == [[3, 4]]


def test_a_context_that_does_not_help_is_an_error(driver: Driver, kernel: Callable[..., None]) -> None:
    driver.contexts.current = None
    driver.cuCtxSetCurrent = lambda context: 0  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="invalid device context"):
        kernel(GRID, BLOCK, [torch.zeros(1), 0, 0])
    assert not driver.launched


def test_threads_in_one_kernel_at_once_keep_their_arguments(driver: Driver, kernel: Callable[..., None]) -> None:
    """All four are in the driver before it reads what any of them gave."""
    driver.before = threading.Barrier(4, timeout=20).wait
    tensors = [torch.zeros(1) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: kernel(GRID, BLOCK, [tensors[n], n, 10 * n]), range(4)))
    found = sorted((one[-2] for one in driver.launched), key=lambda given: given[1])
    assert found == [[tensors[n].data_ptr(), n, 10 * n] for n in range(4)]


def test_a_launch_within_a_launch_leaves_it_its_arguments(driver: Driver, kernel: Callable[..., None]) -> None:
    a = torch.zeros(1)

    def again() -> None:
        driver.before = lambda: None
        kernel(GRID, BLOCK, [a, 3, 4])

    driver.before = again
    kernel(GRID, BLOCK, [a, 1, 2])
    assert [one[-2][1:] for one in driver.launched] == [[3, 4], [1, 2]]


def test_a_compiled_kernel_is_launched_by_the_driver(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch compiles is told how much shared memory a launch will take, and is not called itself."""
    told: list[Any] = []
    made = SimpleNamespace(func=ctypes.c_void_p(FUNCTION), set_shared_memory_config=told.append)

    def built(*given: Any) -> Any:
        told.append(given)
        return made

    monkeypatch.setattr(cuda, "built", built)
    monkeypatch.setattr(torch.cuda, "device", lambda device: cuda.HERE)
    cuda.compiled("text", "name", {"WARPS": 4}, DEVICE, "PROFILE", shared=100_000)(GRID, BLOCK, [torch.zeros(1), 1, 2])
    assert told == [("text", "name", ["-DWARPS=4", "-DPROFILE"]), 100_000]
    assert [one[0] for one in driver.launched] == [FUNCTION]


def test_a_device_is_entered_where_it_is_not_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    entered: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "device", entered.append)
    for device in (torch.device("cuda", 0), torch.device("cuda"), DEVICE):
        cuda.on(device)
    assert entered == [DEVICE]


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 1, 1), (5, 1, 3), (5, 3, 1), (0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_column_major_strides_are_torchs(shape: tuple[int, int, int]) -> None:
    batch, m, n = shape
    found = column_major(torch.zeros(1), *shape)
    assert (found.shape, found.stride()) == (shape, torch.empty(batch, n, m).mT.stride())


@pytest.mark.parametrize("batch", [(), (1,), (7,), (2, 3), (1, 1, 2)], ids=str)
@pytest.mark.parametrize("size", [(5, 3), (1, 1), (1, 4), (4, 1), (32, 32)], ids=str)
def test_one_launch_returns_torchs_strides(
    monkeypatch: pytest.MonkeyPatch, batch: tuple[int, ...], size: tuple[int, int]
) -> None:
    """What the host does around a kernel that does nothing."""
    pytest.importorskip("triton")
    from qrprof.kernels.qr import gpu, rows, tiny

    given: list[Any] = []
    a = torch.randn(*batch, *size).mT.contiguous().mT.requires_grad_()
    monkeypatch.setattr(rows, "TRIED", {a.device: True})
    monkeypatch.setattr(tiny, "kernel", lambda device: lambda *told: given.append(told))
    found, stock = gpu.geqrf(a), torch.geqrf(a.detach())
    assert [(x.shape, x.stride(), x.requires_grad) for x in found] == [(x.shape, x.stride(), False) for x in stock]
    ((grid, block, (taken, _, _, *numbers)),) = given
    flat = gpu.flat(a)
    assert (grid, block, numbers) == ((len(flat), 1, 1), (32, 1, 1), [*size, *flat.stride()])
    assert taken.data_ptr() == a.data_ptr()
