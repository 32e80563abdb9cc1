"""Forming Q (orgqr) and applying it (ormqr) on a GPU: one block reflector after the other, with T where it was kept."""

import torch
import triton

from qrprof.kernels.qr.blocked import (
    DOT,
    Factored,
    blocked_of,
    column_major,
    config_of,
    make_y,
    panel_of,
    update,
)
from qrprof.kernels.qr.configs import Blocked, Config
from qrprof.kernels.qr.panel import qrprof_larft
from qrprof.kernels.qr.update import qrprof_orgqr_update, qrprof_ormqr_update


def orgqr(done: Factored, columns: int, config: Config | None = None) -> torch.Tensor:
    """The first `columns` columns of Q, (batch, m, columns), column-major; m >= columns >= k reflectors."""
    batch, m, _ = done.h.shape
    q = column_major(batch, m, columns, done.h).zero_()
    q.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    if not q.numel() or not done.tau.numel():
        return q
    done, blocked = with_triangles(done, config)
    for start in reversed(range(0, done.tau.shape[1], done.width)):
        # Columns before `start` are those of the identity there: zero from this row on.
        apply(qrprof_orgqr_update, done, blocked, q, start, first=start, transpose=False)
    return q


def ormqr(
    done: Factored, c: torch.Tensor, *, left: bool = True, transpose: bool = False, config: Config | None = None
) -> torch.Tensor:
    """Q C, Q^T C, C Q or C Q^T of each matrix, with Q of (m, m); a new tensor, column-major."""
    batch, rows, columns = c.shape
    result = column_major(batch, rows, columns, c).copy_(c)
    if not c.numel() or not done.tau.numel():
        return result
    done, blocked = with_triangles(done, config)
    starts = range(0, done.tau.shape[1], done.width)
    target = result if left else result.mT  # (C Q)^T = Q^T C^T
    inverse = transpose if left else not transpose
    for start in starts if inverse else reversed(starts):
        apply(qrprof_ormqr_update, done, blocked, target, start, first=0, transpose=inverse)
    return result


def apply(
    kernel: triton.JITFunction, done: Factored, config: Blocked, c: torch.Tensor, start: int, *, first: int,
    transpose: bool,
) -> None:  # fmt: skip
    assert done.t is not None
    batch, m, _ = done.h.shape
    y = c.new_empty(batch * (m - start) * done.width)
    k = done.tau.shape[1]
    make_y(done.h, k, done.t[start // done.width], y, start, done.width, config.update, transpose=transpose)
    update(kernel, done.h, k, y, c, start, (first, c.shape[2]), done.width, config.update)


def with_triangles(done: Factored, config: Config | None) -> tuple[Factored, Blocked]:
    """The factors with T made again (larft) where it was not kept, and the settings to apply them with."""
    k = done.tau.shape[1]
    blocked = blocked_of(config or config_of(done.h.device), k)
    if done.t is not None and done.width == blocked.width:
        return done, blocked
    batch, m, _ = done.h.shape
    width = blocked.width
    blocks = triton.cdiv(k, width)
    panel = panel_of(blocked, min(m, blocked.panels[-1].rows))
    t = done.h.new_empty(blocks, batch, width, width)
    scratch = done.h.new_empty(blocks * batch * width * DOT)
    qrprof_larft[(batch, blocks)](
        done.h, done.tau, t, scratch, m, k, batch, done.h.stride(0),
        W=width, NB=DOT, NP=DOT, BR=panel.block_rows, STAGES=panel.stages, PRECISION=panel.precision,
        num_warps=panel.warps, num_stages=1,
    )  # fmt: skip
    return Factored(done.h, done.tau, t, width), blocked
