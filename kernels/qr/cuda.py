"""Kernels in CUDA C++, compiled by NVRTC through torch, and what their launches can be told."""

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch

from qrprof.kernels.qr.built import built
from qrprof.kernels.qr.launch import launcher

MOST_STRIDE: Final = 2**31 - 1  # a launch's numbers are int
HERE: Final = nullcontext()


def compiled(
    text: str, kernel: str, macros: Mapping[str, int], device: torch.device, *flags: str, shared: int = 0
) -> Callable[..., None]:
    """The kernel of that name, to be called with a grid, a block, arguments and bytes of shared memory, if any.

    Raises what torch raises.
    """
    with torch.cuda.device(device):
        made = built(text, kernel, options(macros, *flags))
        if shared:
            made.set_shared_memory_config(shared)
        return launcher(made)


def options(macros: Mapping[str, int], *flags: str) -> list[str]:
    """What the compiler is told of a setting."""
    return [f"-D{name}={value}" for name, value in macros.items()] + [f"-D{flag}" for flag in flags]


def on(device: torch.device) -> AbstractContextManager[None]:
    """Where the device is the current one. To enter torch's context for that takes microseconds even if it is."""
    here = device.index is None or device.index == torch.cuda.current_device()
    return HERE if here else torch.cuda.device(device)


@functools.lru_cache
def properties(device: torch.device) -> Any:
    """As torch.cuda.get_device_properties, which takes microseconds."""
    return torch.cuda.get_device_properties(device)


def addressable(a: torch.Tensor) -> torch.Tensor:
    """`a`, or a copy of it where a launch cannot be told its strides."""
    return a if max(a.stride()) <= MOST_STRIDE else a.contiguous()
