"""Kernels in CUDA C++, compiled by NVRTC through torch, and what their launches can be told."""

from collections.abc import Mapping
from typing import Any, Final

import torch

MOST_STRIDE: Final = 2**31 - 1  # a launch's numbers are int


def compiled(
    text: str, kernel: str, macros: Mapping[str, int], device: torch.device, *flags: str, shared: int = 0
) -> Any:
    """The kernel of that name, to be called with a grid, a block, arguments and bytes of shared memory, if any.

    Raises what torch raises.
    """
    with torch.cuda.device(device):
        made = torch.cuda._compile_kernel(text, kernel, nvcc_options=options(macros, *flags))
        if shared:
            made.set_shared_memory_config(shared)
    return made


def options(macros: Mapping[str, int], *flags: str) -> list[str]:
    """What the compiler is told of a setting."""
    return [f"-D{name}={value}" for name, value in macros.items()] + [f"-D{flag}" for flag in flags]


def addressable(a: torch.Tensor) -> torch.Tensor:
    """`a`, or a copy of it where a launch cannot be told its strides."""
    return a if max(a.stride()) <= MOST_STRIDE else a.contiguous()
