"""The kernels of QR of tall matrices (`tall`): a level's blocks copied in, its Q, and the signs that are LAPACK's."""

import triton
import triton.language as tl

from qrprof.kernels.qr.panel import unit_lower
from qrprof.kernels.qr.reflect import exponent_of, times_power

# This near to 1, a diagonal entry of Q is that of a reflector that is the identity.
NEAR_ONE = tl.constexpr(1 - 2.0**-16)


@triton.jit
def rows_of_level(
    a_ptr, below_ptr, rows, cols, m, n, height, ld, a_row, a_column, STACKED: tl.constexpr,
):  # fmt: skip
    """Rows of A; or, STACKED, of the triangles R on top of work matrices of `height` rows, n rows each."""
    inside = (rows < m)[:, None] & (cols < n)[None, :]
    if STACKED:
        block, row = (rows // n).to(tl.int64), rows % n
        inside = inside & (row[:, None] <= cols[None, :])
        a = tl.load(a_ptr + ((block * height + row) * ld)[:, None] + cols[None, :], mask=inside, other=0.0)
        exponent = tl.load(below_ptr + (block * ld)[:, None] + cols[None, :], mask=inside, other=0)
        return times_power(a, -exponent)
    else:
        at = rows[:, None].to(tl.int64) * a_row + cols[None, :].to(tl.int64) * a_column
        return tl.load(a_ptr + at, mask=inside, other=0.0)


@triton.jit(do_not_specialize=["m", "n", "r", "blocks", "height"])
def qrprof_copy_tall(
    a_ptr, below_ptr, work_ptr, exponent_ptr, m, n, r, blocks, height, ld, a_batch, below_batch, a_row, a_column,
    BR: tl.constexpr, BC: tl.constexpr, STACKED: tl.constexpr,
):  # fmt: skip
    """Blocks of r rows of every matrix, (batch * blocks, r, ld), columns scaled, with zeros after the last row."""
    tiles = ld // BC
    block = (tl.program_id(0) // tiles).to(tl.int64)
    matrix, start = block // blocks, (block % blocks).to(tl.int32) * r
    cols = (tl.program_id(0) % tiles) * BC + tl.arange(0, BC)
    a_of, below_of = a_ptr + matrix * a_batch, below_ptr + matrix * below_batch
    end = tl.minimum(m, start + r)
    largest = tl.zeros([BR, BC], dtype=tl.float32)
    for first in range(0, r, BR):
        rows = start + first + tl.arange(0, BR)
        a = rows_of_level(a_of, below_of, rows, cols, end, n, height, ld, a_row, a_column, STACKED)
        largest = tl.maximum(largest, tl.abs(a))
    exponent = exponent_of(tl.max(largest, axis=0))
    tl.store(exponent_ptr + block * ld + cols, exponent)
    for first in range(0, r, BR):
        within = first + tl.arange(0, BR)
        a = rows_of_level(a_of, below_of, start + within, cols, end, n, height, ld, a_row, a_column, STACKED)
        at = work_ptr + (block * r + within)[:, None] * ld + cols[None, :]
        tl.store(at, times_power(a, exponent[None, :]), mask=(within < r)[:, None])


@triton.jit
def c_rows(c_of, rows, n, above, N: tl.constexpr):
    """Rows of [C; 0], of N columns; without a level above, C is the identity."""
    index = tl.arange(0, N)
    inside = (rows < n)[:, None] & (index < n)[None, :]
    identity = tl.where(inside & (rows[:, None] == index[None, :]), 1.0, 0.0)
    return tl.load(c_of + rows[:, None] * n + index[None, :], mask=inside & (above != 0), other=identity)


@triton.jit
def to_subtract(
    work_of, t_of, c_of, r, n, ld, above, N: tl.constexpr, W: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """X = T V_1^T C with V's first n rows: Q [C; 0] is [C; 0] - V X."""
    index = tl.arange(0, N)
    upper = (index[:, None] <= index[None, :]) & (index < n)[None, :]
    t = tl.load(t_of + index[:, None] * W + index[None, :], mask=upper, other=0.0)
    v = tl.trans(unit_lower(work_of, r, 0, n, index, index, ld))
    along = tl.dot(v, c_rows(c_of, index, n, above, N), input_precision=PRECISION)
    return tl.dot(t, along, input_precision=PRECISION)


@triton.jit(do_not_specialize=["m", "r", "blocks", "tiles", "above"])
def qrprof_orgqr_tall(
    work_ptr, t_ptr, c_ptr, sign_ptr, q_ptr, m, n, r, blocks, tiles, ld, above, q_batch, q_row, q_column,
    N: tl.constexpr, W: tl.constexpr, BR: tl.constexpr, SIGNED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Q of a level, (m, n) of each matrix, from C, (n, n) of each of its blocks: a tile of a block's rows a program."""
    block = (tl.program_id(0) // tiles).to(tl.int64)
    matrix, start = block // blocks, (block % blocks) * r
    index = tl.arange(0, N)
    rows = (tl.program_id(0) % tiles) * BR + tl.arange(0, BR)
    work_of, c_of = work_ptr + block * r * ld, c_ptr + block * n * n
    v = unit_lower(work_of, r, 0, n, rows, index, ld)
    x = to_subtract(work_of, t_ptr + block * W * W, c_of, r, n, ld, above, N, W, PRECISION)
    q = c_rows(c_of, rows, n, above, N) - tl.dot(v, x, input_precision=PRECISION)
    if SIGNED:
        q *= tl.load(sign_ptr + matrix * n + index, mask=index < n, other=1.0)[None, :]
    at = q_ptr + matrix * q_batch + (start + rows)[:, None] * q_row + index[None, :].to(tl.int64) * q_column
    tl.store(at, q, mask=((rows < r) & (start + rows < m))[:, None] & (index < n)[None, :])


@triton.jit
def lapack_signs(q, r, reflected, n, index):
    """S with which Q S and S R are LAPACK's, from Q's first n rows, R's diagonal, and which columns are reflected.

    LU of Q - S without pivoting (Ballard et al., Reconstructing Householder vectors from TSQR, 2014): with Q's entry at
    pivot j, alpha is R_jj Q_jj, and the pivot is -tau s_j, between 1 and 2 in size. Where alpha is 0 it is beta that is
    not positive. A column with nothing to reflect is its own reflector, and eliminates nothing.
    """
    signs = tl.full(index.shape, 1.0, tl.float32)
    for j in range(n):
        column = tl.sum(tl.where(index[None, :] == j, q, 0.0), axis=1)
        row = tl.sum(tl.where(index[:, None] == j, q, 0.0), axis=0)
        here = index == j
        pivot = tl.sum(tl.where(here, row, 0.0), axis=0)
        beta = tl.sum(tl.where(here, r, 0.0), axis=0)
        tau = tl.sum(tl.where(here, reflected, 0.0), axis=0)
        identity = (tau == 0.0) & (pivot > NEAR_ONE)
        negative = (pivot > 0.0) | ((pivot == 0.0) & (beta > 0.0))
        sign = tl.where(identity, 1.0, tl.where(negative, -1.0, 1.0))
        lower = tl.where((index > j) & (identity == 0), column / tl.where(identity, 1.0, pivot - sign), 0.0)
        q -= lower[:, None] * row[None, :]
        signs = tl.where(here, sign, signs)
    return signs


@triton.jit(do_not_specialize=["r", "blocks", "height", "above"])
def qrprof_orgqr_signs(
    work_ptr, t_ptr, c_ptr, top_ptr, exponent_ptr, reflected_ptr, sign_ptr, r_ptr, n, r, blocks, height, ld,
    above, N: tl.constexpr, W: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Signs of Q's columns, (batch, n), and R with them, column-major, from the top's work matrices of `height` rows.

    work, t, r and blocks are of the first level, C of its first blocks.
    """
    matrix = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, N)
    block = matrix * blocks
    work_of, c_of = work_ptr + block * r * ld, c_ptr + block * n * n
    x = to_subtract(work_of, t_ptr + block * W * W, c_of, r, n, ld, above, N, W, PRECISION)
    v = unit_lower(work_of, r, 0, n, index, index, ld)
    q = c_rows(c_of, index, n, above, N) - tl.dot(v, x, input_precision=PRECISION)
    upper = (index[:, None] <= index[None, :]) & (index < n)[None, :]
    factor = tl.load(top_ptr + (matrix * height + index)[:, None] * ld + index[None, :], mask=upper, other=0.0)
    exponent = tl.load(exponent_ptr + matrix * ld + index, mask=index < n, other=0)
    diagonal = tl.sum(tl.where(index[:, None] == index[None, :], factor, 0.0), axis=0)
    reflected = tl.load(reflected_ptr + matrix * n + index, mask=index < n, other=0.0)
    signs = lapack_signs(q, diagonal, reflected, n, index)
    tl.store(sign_ptr + matrix * n + index, signs, mask=index < n)
    factor = tl.where(upper, times_power(factor, -exponent[None, :]) * signs[:, None], 0.0)
    inside = (index < n)[:, None] & (index < n)[None, :]
    tl.store(r_ptr + matrix * n * n + index[None, :] * n + index[:, None], factor, mask=inside)
