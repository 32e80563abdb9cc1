"""The GPU lanes with batches of any rank; loaded when the first tensor on a GPU arrives."""

import functools
import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from qrprof.kernels.qr import blocked, form, rows, tall, tiny, whole
from qrprof.kernels.qr.configs import Whole
from qrprof.kernels.qr.cuda import on
from qrprof.kernels.qr.graphs import GRAPHS
from qrprof.kernels.qr.layout import batched


def geqrf(A: Tensor) -> tuple[Tensor, Tensor]:
    """As `torch.geqrf`: A is [..., m, n], float32, not empty, on any GPU. Not differentiable."""
    with on(A.device):
        if rows.usable(A.device) and (factor := at_once(A.device, A.shape)):
            H, tau = factor(flat(A))
            return (H, tau) if A.dim() == 3 else (batched(H, A.shape[:-2]), tau.view(*A.shape[:-2], tau.shape[-1]))
        config = blocked.config_of(A.device)
        if blocked.small_of(config, *A.shape[-2:]):
            return blocked.geqrf(A, config)
        H, tau = GRAPHS.run("geqrf", lambda a: blocked.geqrf(a, config), A)
    return H, tau


@functools.lru_cache(4096)
def at_once(device: torch.device, shape: torch.Size) -> Callable[[Tensor], tuple[Tensor, Tensor]] | None:
    """What factors such matrices, as [batch, m, n], in one launch of CUDA C++, which a graph makes no faster."""
    *batch, m, n = shape
    if max(m, n) <= tiny.SIDE:
        return tiny.factor
    config = blocked.config_of(device)
    if blocked.small_of(config, m, n):
        return None
    one = whole.setting(config, math.prod(batch), m, n, device)
    return partial(whole.factor, config=one) if one else None


def orgqr(H: Tensor, tau: Tensor) -> Tensor:
    """As `torch.linalg.householder_product`: H is [..., m, n], tau [..., k], not empty. Not differentiable."""

    def work(h: Tensor, t: Tensor) -> tuple[Tensor]:
        config = blocked.config_of(h.device)
        Q = form.orgqr(form.of_reflectors(flat(h), reflections(t), config), h.shape[-1], config)
        return (batched(Q, h.shape[:-2]),)

    with torch.cuda.device(H.device):
        (Q,) = GRAPHS.run("orgqr", work, H.detach(), tau.detach())
    return Q


def ormqr(H: Tensor, tau: Tensor, C: Tensor, left: bool, transpose: bool) -> Tensor:
    """As `torch.ormqr`: H is [..., m, n], tau [..., k], C [..., m, p] or [..., p, m], not empty. Not differentiable."""

    def work(h: Tensor, t: Tensor, c: Tensor) -> tuple[Tensor]:
        config = blocked.config_of(h.device)
        done = form.of_reflectors(flat(h), reflections(t), config)
        return (batched(form.ormqr(done, flat(c), config, left=left, transpose=transpose), c.shape[:-2]),)

    with torch.cuda.device(H.device):
        (product,) = GRAPHS.run(f"ormqr {left} {transpose}", work, H.detach(), tau.detach(), C.detach())
    return product


def qr(A: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    """As `torch.linalg.qr`: A is [..., m, n], float32, not empty, on any GPU. Not differentiable."""

    def work(a: Tensor) -> tuple[Tensor, ...]:
        batch, m, n = a.shape[:-2], *a.shape[-2:]
        config, k = blocked.config_of(a.device), m if mode == "complete" else min(m, n)
        if mode != "complete" and tall.serves(m, n):
            return tuple(batched(x, batch) for x in tall.qr(flat(a), config, mode))
        done = blocked.factor(flat(a), config)
        R = batched(blocked.finish(done, k, upper=True), batch)
        return (R,) if mode == "r" else (R, batched(form.orgqr(done, k, config), batch))

    with torch.cuda.device(A.device):
        if rows.usable(A.device) and (one := whole_of(A.device, A.shape, mode)):
            return qr_whole(A.detach(), mode, one)
        R, *Q = GRAPHS.run(f"qr {mode}", work, A.detach())
    return Q[0] if Q else A.new_empty(0), R


@functools.lru_cache(4096)
def whole_of(device: torch.device, shape: torch.Size, mode: str) -> Whole | None:
    """The setting by which one launch factors such matrices for linalg.qr, and forms Q."""
    *batch, m, n = shape
    if max(m, n) <= tiny.SIDE or (mode == "complete" and m > n):
        return None
    return whole.setting(blocked.config_of(device), math.prod(batch), m, n, device, forms=mode != "r")


def qr_whole(A: Tensor, mode: str, config: Whole) -> tuple[Tensor, Tensor]:
    batch, k = A.shape[:-2], min(A.shape[-2:])
    if mode == "r":
        H, _ = whole.factor(flat(A), config)
        return A.new_empty(0), batched(H[:, :k].triu(), batch)
    Q, R = whole.qr(flat(A), config)
    return batched(Q, batch), batched(R, batch)


def flat(x: Tensor) -> Tensor:
    return x if x.dim() == 3 else x.reshape(-1, *x.shape[-2:])


def reflections(tau: Tensor) -> Tensor:
    return tau.reshape(-1, tau.shape[-1]).contiguous()
