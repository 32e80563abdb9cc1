"""One function for each op that calls the lane which `dispatch` names; torch itself is the lane for all the rest."""

import functools
import math
from importlib.util import find_spec
from typing import Final, get_args

import torch
from torch import Tensor

from qrprof.kernels.qr import cpu
from qrprof.kernels.qr.dispatch import Lane, lane

ALL: Final = get_args(Lane)
MODES: Final = ("reduced", "complete", "r")
GPU: frozenset[Lane] = frozenset({"cuda-blocked", "cuda-tall", "triton-small", "triton-blocked"})


def lane_of(op: str, matrices: Tensor) -> Lane:
    """The lane of `op` on these matrices, [..., m, n], where this machine has it."""
    if matrices.layout != torch.strided:
        return "torch"
    return lane_of_shape(op, matrices.device, matrices.dtype, matrices.shape)


@functools.lru_cache(4096)
def lane_of_shape(op: str, device: torch.device, dtype: torch.dtype, shape: torch.Size) -> Lane:
    if len(shape) < 2:
        return "torch"
    *batch, m, n = shape
    without = [name for name in ALL if not usable(name, device)]
    return lane(op, device.type, str(dtype).removeprefix("torch."), math.prod(batch), m, n, without)


def lane_of_qr(A: Tensor, mode: str) -> Lane:
    """The lane of linalg.qr. All of Q of a tall matrix is torch's: it is m x m."""
    found = lane_of("linalg_qr", A) if mode in MODES else "torch"
    return "torch" if found == "cuda-tall" and mode == "complete" else found


def usable(found: Lane, device: torch.device) -> bool:
    """Whether this machine has the lane. The device's index counts: a machine may have GPUs of several kinds."""
    if found in ("torch", "cpu-batched"):
        return found == "torch" or cpu.available()
    if find_spec("triton") is None or torch.version.hip:
        return False
    if found in ("triton-small", "triton-blocked"):
        return True
    from qrprof.kernels.qr import rows

    return rows.usable(device)


def geqrf(A: Tensor) -> tuple[Tensor, Tensor]:
    found = lane_of("geqrf", A)
    if found == "cpu-batched":
        return cpu.geqrf(A)
    if found in GPU:
        from qrprof.kernels.qr import gpu

        return gpu.geqrf(A)
    with torch.no_grad():
        H, tau = torch.geqrf(A)
    return H, tau


def orgqr(H: Tensor, tau: Tensor) -> Tensor:
    found = lane_of("linalg_householder_product", H) if reflectors(H, tau) else "torch"
    if found == "cpu-batched":
        return cpu.orgqr(H, tau)
    if found in GPU:
        from qrprof.kernels.qr import gpu

        return gpu.orgqr(H, tau)
    with torch.no_grad():
        Q: Tensor = torch.linalg.householder_product(H, tau)
    return Q


def ormqr(H: Tensor, tau: Tensor, C: Tensor, *, left: bool, transpose: bool) -> Tensor:
    found = lane_of("ormqr", H) if reflectors(H, tau) and multiplies(H, C, left) else "torch"
    if found == "cpu-batched":
        return cpu.ormqr(H, tau, C, left, transpose)
    if found in GPU:
        from qrprof.kernels.qr import gpu

        return gpu.ormqr(H, tau, C, left, transpose)
    with torch.no_grad():
        return torch.ormqr(H, tau, C, left, transpose)


def qr(A: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    found = lane_of_qr(A, mode)
    if found == "cpu-batched":
        return cpu.qr(A, mode)
    if found in GPU:
        from qrprof.kernels.qr import gpu

        return gpu.qr(A, mode)
    with torch.no_grad():
        Q, R = torch.linalg.qr(A, mode)
    return Q, R


def reflectors(H: Tensor, tau: Tensor) -> bool:
    """Whether torch takes H and tau together."""
    return (
        H.dim() >= 2
        and H.shape[:-2] == tau.shape[:-1]
        and H.shape[-2] >= H.shape[-1] >= tau.shape[-1] > 0
        and (H.dtype, H.device) == (tau.dtype, tau.device)
    )


def multiplies(H: Tensor, C: Tensor, left: bool) -> bool:
    """Whether torch takes H and C together."""
    return (
        H.shape[:-2] == C.shape[:-2]
        and C.dim() == H.dim()
        and C.shape[-2 if left else -1] == H.shape[-2]
        and C.numel() > 0
        and (H.dtype, H.device) == (C.dtype, C.device)
    )
