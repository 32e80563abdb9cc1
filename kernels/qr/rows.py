"""The leaf kernel of rows.cu: compiled by NVRTC, once a device and setting, and launched beside the Triton kernels."""

import functools
from collections.abc import Callable
from typing import Final

import torch

from qrprof.kernels.qr.configs import DEFAULT, Rows
from qrprof.kernels.qr.cuda import compiled
from qrprof.kernels.qr.source import source

LEAF: Final = 32  # as in rows.cu
NAME: Final = "qrprof_geqr2_larft_rows"
LEAST_CAPABILITY: Final = (9, 0)  # clusters of blocks
TRIED: Final[dict[torch.device, bool]] = {}  # whether this torch compiles CUDA C++ for it


def usable(device: torch.device) -> bool:
    """Whether this torch compiles CUDA C++ for this device."""
    if device not in TRIED:
        able = device.type == "cuda" and torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY
        # A module that is loaded for a try would end a capture.
        if able and torch.cuda.is_current_stream_capturing():
            return True
        TRIED[device] = able and compiles(device)
    return TRIED[device]


def compiles(device: torch.device) -> bool:
    try:
        kernel(DEFAULT.rows[0], device, profiled=False)
    except (ImportError, AttributeError, OSError, RuntimeError):  # not by this torch, no NVRTC, or one that fails
        return False
    return True


@functools.lru_cache
def kernel(config: Rows, device: torch.device, *, profiled: bool) -> Callable[..., None]:
    return compiled(source("rows.cu"), NAME, macros_of(config), device, *["PROFILE"] * profiled)


def macros_of(config: Rows) -> dict[str, int]:
    return {"WARPS": config.threads // 32, "SLOTS": 2 * config.each, "CLUSTER": config.cluster}


def factor_leaf(
    work: torch.Tensor, tau: torch.Tensor, t: torch.Tensor, leaf: int, config: Rows, stamps: list[torch.Tensor] | None
) -> None:
    """Factor columns leaf .. leaf + LEAF of the work matrices, (batch, m, ld); T to t's first LEAF rows and columns.

    To `stamps` goes what the PROFILE variant stamps, (batch, cluster, 3) in ns: see rows.cu.
    """
    batch, m, ld = work.shape
    arguments = [work, tau, t, m, ld, tau.shape[1], leaf, t.stride(1), t.stride(0)]
    if stamps is not None:
        stamps.append(torch.zeros(batch, config.cluster, 3, dtype=torch.int64, device=work.device))
        arguments.append(stamps[-1])
    launch = kernel(config, work.device, profiled=stamps is not None)
    launch((batch * config.cluster, 1, 1), (config.threads, 1, 1), arguments)
