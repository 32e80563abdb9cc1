"""Factoring a leaf (geqr2) with its T (larft), a program a matrix: the way without a CUDA compiler (`rows`)."""

import triton
import triton.language as tl

from qrprof.kernels.qr.reflect import SIDE, join_triangles, reflect


@triton.jit
def unit_lower(at, m, first, count, rows, columns, ld):
    """V of the reflectors first .. first + count, in these rows and columns of a work matrix at `at`."""
    inside = (columns >= first) & (columns < first + count)
    v = tl.load(at + rows[:, None] * ld + columns[None, :], mask=inside[None, :] & (rows < m)[:, None], other=0.0)
    on = (rows[:, None] == columns[None, :]) & inside[None, :]
    return tl.where(rows[:, None] > columns[None, :], v, tl.where(on, 1.0, 0.0))


@triton.jit(do_not_specialize=["m", "k", "number", "t_batch"])
def qrprof_geqr2_larft_leaf(
    work_ptr, tau_ptr, t_ptr, m, ld, k, number, t_batch,
    BM: tl.constexpr, W: tl.constexpr, PRECISION: tl.constexpr, PAIRED: tl.constexpr,
):  # fmt: skip
    """Columns number * SIDE .. + SIDE of every work matrix, (m, ld), from that row on; T to a (SIDE, SIDE) of t."""
    matrix = tl.program_id(0).to(tl.int64)
    leaf = number * SIDE
    rows = tl.arange(0, BM)
    cols = tl.arange(0, SIDE)
    at = work_ptr + matrix * m * ld + (leaf + rows)[:, None] * ld + (leaf + cols)[None, :]
    inside = (leaf + rows < m)[:, None]
    tile = tl.load(at, mask=inside, other=0.0)
    index = tl.arange(0, SIDE)
    gram = tl.zeros([SIDE, SIDE], dtype=tl.float32)
    for j in range(SIDE):
        tile, one, along = reflect(tile, j, rows, cols, PAIRED)
        gram = tl.where(index[:, None] == j, tl.where(cols == j, one, along)[None, :], gram)
    tl.store(at, tile, mask=inside)
    # Row j of gram is V^T v_j before tau_j: below the diagonal as T^T needs it.
    taus = tl.where(index[:, None] == cols[None, :], gram, 0.0)
    tl.store(tau_ptr + matrix * k + leaf + cols, tl.sum(taus, axis=0), mask=leaf + cols < k)
    triangle = join_triangles(taus, tl.trans(gram), 1, PRECISION)
    tl.store(t_ptr + matrix * t_batch + index[:, None] * W + index[None, :], triangle)
