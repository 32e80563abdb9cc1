"""The Triton lanes with batches of any rank; loaded when the first tensor on a GPU arrives."""

import torch
from torch import Tensor

from qrprof.kernels.qr import blocked, form
from qrprof.kernels.qr.layout import batched, column_major


def geqrf(A: Tensor) -> tuple[Tensor, Tensor]:
    """As `torch.geqrf`: A is [..., m, n], float32, not empty, on any GPU. Not differentiable."""
    batch, m, n = A.shape[:-2], *A.shape[-2:]
    with torch.cuda.device(A.device):
        done = blocked.factor(A)
    return batched(done.h, batch), done.tau.view(*batch, min(m, n))


def orgqr(H: Tensor, tau: Tensor) -> Tensor:
    """As `torch.linalg.householder_product`: H is [..., m, n], tau [..., k], not empty. Not differentiable."""
    with torch.cuda.device(H.device):
        Q = form.orgqr(factored(H, tau), H.shape[-1])
    return batched(Q, H.shape[:-2])


def ormqr(H: Tensor, tau: Tensor, C: Tensor, left: bool, transpose: bool) -> Tensor:
    """As `torch.ormqr`: H is [..., m, n], tau [..., k], C [..., m, p] or [..., p, m], not empty. Not differentiable."""
    with torch.cuda.device(H.device):
        flat = C.detach().reshape(-1, *C.shape[-2:])
        product = form.ormqr(factored(H, tau), flat, left=left, transpose=transpose)
    return batched(product, C.shape[:-2])


def qr(A: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    """As `torch.linalg.qr`: A is [..., m, n], float32, not empty, on any GPU. Not differentiable."""
    batch, m, n = A.shape[:-2], *A.shape[-2:]
    k = m if mode == "complete" else min(m, n)
    with torch.cuda.device(A.device):
        done = blocked.factor(A)
        R = batched(done.h[:, :k].mT.tril().mT, batch)
        return A.new_empty(0) if mode == "r" else batched(form.orgqr(done, k), batch), R


def factored(H: Tensor, tau: Tensor) -> blocked.Factored:
    batch, m, n = H[..., 0, 0].numel(), *H.shape[-2:]
    flat = H.detach().reshape(batch, m, n)
    if flat.stride() != (m * n, 1, m):
        flat = column_major(H, batch, m, n).copy_(flat)
    return blocked.Factored(flat, tau.detach().reshape(batch, -1).contiguous(), None, 0)
