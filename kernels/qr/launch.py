"""Launches of CUDA C++ kernels, by the driver itself.

A call of the kernel that torch returns loads the driver's library anew and makes C objects of each argument: tens of
microseconds of the host, where small matrices take ten of the device.
"""

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

Argument = torch.Tensor | int
Sides = tuple[int, int, int]

NO_CONTEXT: Final = 201  # CUDA_ERROR_INVALID_CONTEXT


def launcher(kernel: Any) -> Callable[..., None]:
    """A kernel that torch has loaded for the current device, to be called as the end of `launch`."""
    context = ctypes.c_void_p()
    check(driver().cuCtxGetCurrent(ctypes.byref(context)))
    return functools.partial(launch, kernel, context, torch.cuda.current_device())


def launch(
    kernel: Any, context: ctypes.c_void_p, device: int,
    grid: Sides, block: Sides, arguments: Sequence[Argument], shared: int = 0,
) -> None:  # fmt: skip
    """Launch torch's kernel on the device's current stream. Raises RuntimeError with what CUDA says."""
    stream = ctypes.c_void_p(torch._C._cuda_getCurrentRawStream(device))
    cuda, function, given = driver(), kernel.func, packed(arguments)
    result = cuda.cuLaunchKernel(function, *grid, *block, shared, stream, given, None)
    if result == NO_CONTEXT:  # what torch did in this thread so far needed none
        check(cuda.cuCtxSetCurrent(context))
        result = cuda.cuLaunchKernel(function, *grid, *block, shared, stream, given, None)
    if result:
        check(result)


def packed(arguments: Sequence[Argument]) -> "ctypes.Array[ctypes.c_int64]":
    """The arguments' addresses, as the driver takes them, and behind these the arguments, eight bytes each.

    An int is the first four. The driver copies them before it returns. Each call has its own: threads launch at once.
    """
    values = [x if isinstance(x, int) else x.data_ptr() for x in arguments]
    count = len(values)
    room = (ctypes.c_int64 * (2 * count))()
    first = ctypes.addressof(room) + 8 * count
    struct.pack_into(f"{2 * count}q", room, 0, *range(first, first + 8 * count, 8), *values)
    return room


@functools.cache
def driver() -> Any:
    """The driver's library. Types of arguments are not declared: to check them takes longer than the call."""
    from torch.cuda._utils import _get_gpu_runtime_library

    return _get_gpu_runtime_library()


def check(result: int) -> None:
    from torch.cuda._utils import _check_cuda

    _check_cuda(result)
