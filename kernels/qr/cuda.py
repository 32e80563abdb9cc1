"""The CUDA C++ of this folder: its text, and kernels of it that NVRTC compiles through torch."""

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

import torch

INCLUDED: Final = re.compile(r'#include "(\w+\.cuh)"\n')
MOST_STRIDE: Final = 2**31 - 1  # a launch's numbers are int


def source(name: str) -> str:
    """A .cu file as one text: with the .cuh files that it includes, which include none, in their places."""
    folder = files("qrprof.kernels.qr")

    def text(of: str) -> str:
        return folder.joinpath(of).read_text(encoding="utf-8")

    return INCLUDED.sub(lambda line: text(line[1]), text(name))


def compiled(text: str, kernel: str, macros: Mapping[str, int], device: torch.device, *flags: str) -> Any:
    """The kernel of that name, to be called with a grid, a block and arguments. Raises what torch raises."""
    options = [f"-D{name}={value}" for name, value in macros.items()] + [f"-D{flag}" for flag in flags]
    with torch.cuda.device(device):
        return torch.cuda._compile_kernel(text, kernel, nvcc_options=options)


def addressable(a: torch.Tensor) -> torch.Tensor:
    """`a`, or a copy of it where a launch cannot be told its strides."""
    return a if max(a.stride()) <= MOST_STRIDE else a.contiguous()
