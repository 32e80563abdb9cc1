"""geqrf of matrices of up to SIDE x SIDE in one launch, a warp each (tiny.cu)."""

import functools
from collections.abc import Callable
from typing import Final

import torch

from qrprof.kernels.qr.cuda import addressable, compiled
from qrprof.kernels.qr.layout import column_major
from qrprof.kernels.qr.source import source

SIDE: Final = 32  # as in tiny.cu
NAME: Final = "qrprof_geqr2_tiny"


def factor(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(H, tau) of (batch, m, n), not empty, H column-major."""
    batch, m, n = a.shape
    a, h, tau = addressable(a), column_major(a, batch, m, n), a.new_empty(batch, min(m, n))
    kernel(a.device)((batch, 1, 1), (SIDE, 1, 1), [a, h, tau, m, n, *a.stride()])
    return h, tau


@functools.lru_cache
def kernel(device: torch.device) -> Callable[..., None]:
    return compiled(source("tiny.cu"), NAME, {}, device)
