"""Householder QR as LAPACK defines it, a column at a time: slow, plain, real, any dtype. For tests only.

A = Q R with Q = H_0 H_1 ... H_(k-1), H_j = I - tau_j v_j v_j^T, k = min(m, n). v_j is 0 above row j, 1 in row j, and
stored below the diagonal of H. Every function takes a batch of any shape, and goes through it matrix by matrix.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Results = tuple[Tensor, ...]
MOST_RESCALINGS = 20


def geqrf(a: Tensor) -> tuple[Tensor, Tensor]:
    """(H, tau) of A (..., m, n): R in the upper triangle of H (..., m, n), tau (..., k). LAPACK ?geqr2."""
    h, tau = each(geqr2, (a, 2))
    return h, tau


def orgqr(h: Tensor, tau: Tensor) -> Tensor:
    """The first n columns of Q (..., m, n), from H (..., m, n) with m >= n and tau (..., up to n). LAPACK ?org2r."""
    (q,) = each(org2r, (h, 2), (tau, 1))
    return q


def ormqr(h: Tensor, tau: Tensor, c: Tensor, *, left: bool = True, transpose: bool = False) -> Tensor:
    """Q C, Q^T C, C Q or C Q^T for the whole m x m Q of H (..., m, k) and tau (..., k). LAPACK ?orm2r."""

    def one(h: Tensor, tau: Tensor, c: Tensor) -> Results:
        return (orm2r(h, tau, c, left, transpose),)

    (out,) = each(one, (h, 2), (tau, 1), (c, 2))
    return out


def larft(v: Tensor, tau: Tensor) -> Tensor:
    """T (..., k, k), upper triangular, with H_0 ... H_(k-1) = I - V T V^T, V the reflectors in `v` (..., m, k).

    LAPACK ?larft, forward and columnwise.
    """

    def one(v: Tensor, tau: Tensor) -> Results:
        t = v.new_zeros(len(tau), len(tau))
        v = v.tril(-1)
        v.diagonal().fill_(1)
        for j in range(len(tau)):
            t[:j, j] = -tau[j] * (t[:j, :j] @ (v[:, :j].mT @ v[:, j]))
            t[j, j] = tau[j]
        return (t,)

    (out,) = each(one, (v, 2), (tau, 1))
    return out


def qr(a: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """(Q, R) as torch.linalg.qr: reduced Q (..., m, k), complete Q (..., m, m), or an empty Q for mode r."""
    m, n = a.shape[-2:]
    h, tau = geqrf(a)
    if mode == "r":
        return a.new_empty(0), h[..., : min(m, n), :].triu()
    columns = m if mode == "complete" else min(m, n)
    wide = torch.cat([h, h.new_zeros(*h.shape[:-1], max(columns - n, 0))], dim=-1)[..., :columns]
    return orgqr(wide, tau), h[..., :columns, :].triu()


def each(one: Callable[..., Results], *arguments: tuple[Tensor, int]) -> Results:
    """`one` on every matrix of the batch, the results stacked; an argument comes with its dimensions in a matrix."""
    first, dimensions = arguments[0]
    batch = first.shape[: first.dim() - dimensions]
    count = batch.numel()
    flat = [x.reshape(count, *x.shape[x.dim() - own :]) for x, own in arguments]
    shown = [x if count else x.new_zeros(1, *x.shape[1:]) for x in flat]  # an empty batch has results of a shape too
    results = [one(*matrix) for matrix in zip(*shown, strict=True)]
    return tuple(torch.stack(column)[:count].reshape(*batch, *column[0].shape) for column in zip(*results, strict=True))


def geqr2(a: Tensor) -> Results:
    h = a.clone()
    m, n = h.shape
    tau = h.new_zeros(min(m, n))
    for j in range(min(m, n)):
        beta, tail, tau[j] = larfg(h[j, j], h[j + 1 :, j])
        v = torch.cat([h.new_ones(1), tail])
        h[j:, j + 1 :] -= tau[j] * torch.outer(v, v @ h[j:, j + 1 :])
        h[j, j], h[j + 1 :, j] = beta, tail
    return h, tau


def larfg(alpha: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(beta, v, tau) with (I - tau (1, v) (1, v)^T) (alpha, x) = (beta, 0); beta has not alpha's sign. LAPACK ?larfg.

    tau is 0 where x is 0, and H the identity then; otherwise 1 <= tau <= 2.
    """
    length = norm(x)
    if length == 0:
        return alpha.clone(), x.clone(), torch.zeros_like(alpha)
    info = torch.finfo(x.dtype)
    smallest = 2 * info.smallest_normal / info.eps
    beta = -norm(torch.stack([alpha, length])).copysign(alpha)
    rescaled = 0
    while beta.abs() < smallest and rescaled < MOST_RESCALINGS:
        x, alpha, beta, rescaled = x / smallest, alpha / smallest, beta / smallest, rescaled + 1
    if rescaled:
        beta = -norm(torch.stack([alpha, norm(x)])).copysign(alpha)
    tau = (beta - alpha) / beta
    v = x / (alpha - beta)
    for _ in range(rescaled):
        beta = beta * smallest
    return beta, v, tau


def norm(x: Tensor) -> Tensor:
    """The 2-norm, without overflow or underflow on the way. BLAS ?nrm2."""
    if x.numel() == 0:
        return x.new_zeros(())
    largest = x.abs().max()
    return largest if largest == 0 else largest * torch.linalg.vector_norm(x / largest)


def org2r(h: Tensor, tau: Tensor) -> Results:
    q = torch.eye(*h.shape, dtype=h.dtype, device=h.device)
    return (orm2r(h, tau, q, left=True, transpose=False),)


def orm2r(h: Tensor, tau: Tensor, c: Tensor, left: bool, transpose: bool) -> Tensor:
    if not left:
        return orm2r(h, tau, c.mT, True, not transpose).mT
    c = c.clone()
    order = range(len(tau)) if transpose else reversed(range(len(tau)))
    for j in order:
        v = torch.cat([h.new_ones(1), h[j + 1 :, j]])
        c[j:] -= tau[j] * torch.outer(v, v @ c[j:])
    return c
