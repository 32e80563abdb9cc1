"""Forming Q (orgqr) and applying it (ormqr) on a GPU: one block reflector after the other, with T where it was kept."""

import torch
import triton

from qrprof.kernels.qr.blocked import PADDED, Factored, blocked_of, halves_of, make_t, update, with_y
from qrprof.kernels.qr.configs import Config
from qrprof.kernels.qr.update import qrprof_orgqr_update, qrprof_ormqr_update


def orgqr(done: Factored, columns: int, config: Config) -> torch.Tensor:
    """The first `columns` columns of Q, (batch, m, columns), row-major; m >= columns >= k reflectors."""
    q = done.work.new_zeros(*done.work.shape[:2], columns)
    q.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    blocked = blocked_of(config, done.tau.shape[1])
    tiles = blocked.outer if done.bounded else blocked.applied
    for block in reversed(range(done.t.shape[1])):
        # Columns before the block's are those of the identity there: zero from its first row on.
        first = block * done.width
        v = with_y(halves_of(done, block, tiles), done.t[:, block], transpose=False)
        update(qrprof_orgqr_update, done, tiles, blocked, block, q, v, first, columns, transpose=False)
    return q


def ormqr(done: Factored, c: torch.Tensor, config: Config, *, left: bool, transpose: bool) -> torch.Tensor:
    """Q C, Q^T C, C Q or C Q^T of each matrix, with Q of (m, m); a new tensor."""
    target = (c if left else c.mT).clone(memory_format=torch.contiguous_format)  # (C Q)^T = Q^T C^T
    blocks = range(done.t.shape[1])
    inverse = transpose if left else not transpose
    blocked = blocked_of(config, done.tau.shape[1])
    for block in blocks if inverse else reversed(blocks):
        of = (qrprof_ormqr_update, done, blocked.applied, blocked, block, target, None)
        update(*of, 0, target.shape[2], transpose=inverse)
    return target if left else target.mT


def of_reflectors(h: torch.Tensor, tau: torch.Tensor, config: Config) -> Factored:
    """Work matrices with T (larft) of the reflectors in h, (batch, m, n), and tau, (batch, k), of any size."""
    batch, m, n = h.shape
    blocked = blocked_of(config, tau.shape[1])
    width, blocks = blocked.width, triton.cdiv(tau.shape[1], blocked.width)
    work = h.new_empty(batch, m, triton.cdiv(n, PADDED) * PADDED)
    work[:, :, :n] = h
    exponent = torch.zeros(batch, work.shape[2], dtype=torch.int32, device=h.device)
    done = Factored(work, n, tau, exponent, h.new_empty(batch, blocks, width, width), width, bounded=False)
    make_t(done, blocked, 0, blocks, None, of=1)
    return done
