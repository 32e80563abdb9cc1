"""Whether one matrix of a call came out right, in float64: the check of a swap while a program runs.

Each returns a truth on the device of the inputs, so that nothing waits for a GPU. A result of non-finite input passes.
The bounds are several times what `checks.strict` allows of a square matrix, since a call may be as small as one column;
a product in TF32 exceeds them. n is the root of the rows where that is more than the columns, since rounding of a sum
grows so, but no more than that of MOST_ROWS: taller matrices are factored in blocks.
"""

import math

import torch
from torch import Tensor

from qrprof.kernels.qr import stock

COLUMN = 4.0  # n eps ||A_j||_1
ORTHOGONAL = 20.0  # n eps
MOST_ROWS = 4096
FEWEST = 16  # for n: a few rows have a few roundings each


def qr(nth: int, result: tuple[Tensor, Tensor], A: Tensor, mode: str = "reduced") -> Tensor:
    """Of the matrix at `nth` modulo the batch: R is triangular, Q^T Q = I and Q R = A; without Q, R^T R = A^T A."""
    Q, R = result
    a, r = one(A, nth), one(R, nth)
    triangular = (r.tril(-1) == 0).all()
    if mode != "r":
        return (good(A.dtype, a, one(Q, nth), r) & triangular) | ~a.isfinite().all()
    lengths = torch.linalg.vector_norm(a, dim=0) + least(A.dtype)
    bound = ORTHOGONAL * rounding(A.dtype, *a.shape) * lengths * lengths[:, None]
    right: Tensor = ((r.mT @ r - a.mT @ a).abs() <= bound).all()
    return (right & triangular) | ~a.isfinite().all()


def geqrf(nth: int, result: tuple[Tensor, Tensor], A: Tensor) -> Tensor:
    """Of the matrix at `nth` modulo the batch, with Q formed in float64."""
    H, tau = result
    h, k = one(H, nth), tau.shape[-1]
    (q,) = stock.orgqr(h[:, :k], one(tau.unsqueeze(-1), nth)[:, 0])
    a = one(A, nth)
    return good(A.dtype, a, q, h[:k].triu()) | ~a.isfinite().all()


def orgqr(nth: int, Q: Tensor, H: Tensor, tau: Tensor) -> Tensor:
    """Of the matrix at `nth` modulo the batch: Q as torch forms it in float64."""
    h = one(H, nth)
    (q,) = stock.orgqr(h, one(tau.unsqueeze(-1), nth)[:, 0])
    return ((one(Q, nth) - q).abs().sum(0) <= ORTHOGONAL * rounding(H.dtype, *h.shape)).all() | ~q.isfinite().all()


def good(dtype: torch.dtype, a: Tensor, q: Tensor, r: Tensor) -> Tensor:
    """R - Q^T A does not see what Q does not span, as rows that were left out: A - Q R does."""
    rows, k = q.shape
    unit = rounding(dtype, rows, k)
    factor = small(r[:k] - q.mT @ a, a, dtype, unit)
    if k < rows:
        factor &= small(a - q @ r[:k], a, dtype, unit)
    identity = torch.eye(k, dtype=q.dtype, device=q.device)
    orthogonal = (q.mT @ q - identity).abs().sum(0) <= ORTHOGONAL * unit
    return factor & orthogonal.all()


def small(residual: Tensor, a: Tensor, dtype: torch.dtype, unit: float) -> Tensor:
    """Column by column. Where `a` is of denormal numbers, each entry of a residual may hold the rounding of one."""
    bound = COLUMN * unit * (a.abs().sum(0) + len(residual) * least(dtype))
    return (residual.abs().sum(0) <= bound).all()


def one(matrices: Tensor, nth: int) -> Tensor:
    flat = matrices.reshape(-1, *matrices.shape[-2:]) if matrices.dim() > 3 else matrices
    return (flat[nth % len(flat)] if flat.dim() == 3 else flat).double()


def rounding(dtype: torch.dtype, rows: int, columns: int) -> float:
    return max(FEWEST, columns, math.isqrt(min(rows, MOST_ROWS))) * torch.finfo(dtype).eps


def least(dtype: torch.dtype) -> float:
    """Of denormal numbers, rounding leaves no more than of this one."""
    return torch.finfo(dtype).smallest_normal
