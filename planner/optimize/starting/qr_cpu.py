"""QR of many small float32 matrices on a CPU: one reflector of all matrices at a time, the batch running fastest.

torch shares every step over its threads. LAPACK, which takes one matrix after the other, is better at wide ones.
"""

import torch
from torch import Tensor

TUNABLES = {
    "CHUNK": (128, 512, 2048, 8192, 32768),
    "LIBRARY_FROM": (4, 8, 16, 32, 64),
}
CHUNK = 8192  # matrices at a time: more than the caches hold are slow, and few are mostly calls
LIBRARY_FROM = 16  # columns from which on LAPACK does it


def factored(A: Tensor) -> tuple[Tensor, Tensor]:
    """R and the reflectors of A [batch, m, n] as [m, n, batch], and tau [k, batch]: float64, nothing overflows."""
    _, m, n = A.shape
    W = A.permute(1, 2, 0).double().contiguous()
    tau = W.new_zeros(min(m, n), len(A))
    for j in range(min(m, n)):
        alpha, x = W[j, j].clone(), W[j + 1 :, j].clone()
        tail = x.square().sum(0)
        beta = torch.copysign((alpha.square() + tail).sqrt(), -alpha)
        plain = tail == 0  # nothing to reflect
        tau[j] = torch.where(plain, 0, (beta - alpha) / beta)
        v = torch.where(plain, 0, x / (alpha - beta))
        reflect(W[j:, j + 1 :], v, tau[j])
        W[j, j], W[j + 1 :, j] = torch.where(plain, alpha, beta), v
    return W, tau


def reflect(C: Tensor, v: Tensor, tau: Tensor) -> None:
    """C becomes C - tau (1, v) (1, v)^T C."""
    along = tau * (C[0] + (v.unsqueeze(1) * C[1:]).sum(0))
    C[0] -= along
    C[1:] -= v.unsqueeze(1) * along


def formed(W: Tensor, tau: Tensor, columns: int) -> Tensor:
    """The first columns of Q, [m, columns, batch]."""
    Q = W.new_zeros(len(W), columns, W.shape[2])
    Q.diagonal(dim1=0, dim2=1).fill_(1.0)
    for j in reversed(range(len(tau))):
        reflect(Q[j:, j:], W[j + 1 :, j], tau[j])
    return Q


def column_major(like: Tensor, m: int, n: int) -> tuple[Tensor, Tensor]:
    """An empty [..., m, n], and the same as one batch."""
    base = like.new_empty(*like.shape[:-2], n, m)
    return base.mT, base.view(-1, n, m).mT


def geqrf_candidate(self: Tensor) -> tuple[Tensor, ...]:
    *batch, m, n = self.shape
    if n >= LIBRARY_FROM or not self.numel():
        return tuple(torch.geqrf(self))
    flat = self.reshape(-1, m, n)
    H, Hs = column_major(self, m, n)
    tau = self.new_empty(*batch, min(m, n))
    taus = tau.view(-1, min(m, n))
    for at in range(0, len(flat), CHUNK):
        W, t = factored(flat[at : at + CHUNK])
        Hs[at : at + CHUNK] = W.permute(2, 0, 1)
        taus[at : at + CHUNK] = t.T
    return H, tau


def qr_candidate(A: Tensor, mode: str = "reduced") -> tuple[Tensor, ...]:
    *_, m, n = A.shape
    if n >= LIBRARY_FROM or mode == "r" or not A.numel():
        return tuple(torch.linalg.qr(A, mode))
    k = m if mode == "complete" else min(m, n)
    flat = A.reshape(-1, m, n)
    (Q, Qs), (R, Rs) = column_major(A, m, k), column_major(A, k, n)
    for at in range(0, len(flat), CHUNK):
        W, tau = factored(flat[at : at + CHUNK])
        Qs[at : at + CHUNK] = formed(W, tau, k).permute(2, 0, 1)
        Rs[at : at + CHUNK] = W[:k].permute(2, 0, 1).triu()
    return Q, R
