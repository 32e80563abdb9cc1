"""Copying a matrix in with every column scaled by a power of two, and H or R back out.

Column scaling is exact and leaves the reflectors as they are: R's columns alone carry the scale. It keeps the squares
of huge, denormal and single tiny columns inside fp32. The work matrices are row-major, (batch, m, ld), with zeros in
columns n .. ld.
"""

import triton
import triton.language as tl

from qrprof.kernels.qr.reflect import exponent_of, times_power


@triton.jit(do_not_specialize=["m", "n", "tiles"])
def qrprof_copy_prepare(
    a_ptr, work_ptr, exponent_ptr, m, n, ld, tiles, a_batch, a_row, a_column,
    BC: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """The work matrices of A of any strides, and the exponents of their columns, (batch, ld)."""
    matrix = (tl.program_id(0) // tiles).to(tl.int64)
    cols = (tl.program_id(0) % tiles) * BC + tl.arange(0, BC)
    source = a_ptr + matrix * a_batch + cols[None, :].to(tl.int64) * a_column
    largest = tl.zeros([BR, BC], dtype=tl.float32)
    for r in range(0, m, BR):
        rows = r + tl.arange(0, BR)
        inside = (rows < m)[:, None] & (cols < n)[None, :]
        a = tl.load(source + rows[:, None].to(tl.int64) * a_row, mask=inside, other=0.0)
        largest = tl.maximum(largest, tl.abs(a))
    exponent = exponent_of(tl.max(largest, axis=0))
    tl.store(exponent_ptr + matrix * ld + cols, exponent, mask=cols < ld)
    for r in range(0, m, BR):
        rows = r + tl.arange(0, BR)
        inside = (rows < m)[:, None] & (cols < n)[None, :]
        a = tl.load(source + rows[:, None].to(tl.int64) * a_row, mask=inside, other=0.0)
        at = work_ptr + matrix * m * ld + rows[:, None] * ld + cols[None, :]
        tl.store(at, times_power(a, exponent[None, :]), mask=(rows < m)[:, None] & (cols < ld)[None, :])


@triton.jit(do_not_specialize=["m", "n", "rows_out", "row_tiles", "column_tiles"])
def qrprof_copy_finish(
    work_ptr, exponent_ptr, h_ptr, m, n, ld, rows_out, row_tiles, column_tiles,
    BC: tl.constexpr, BR: tl.constexpr, UPPER: tl.constexpr,
):  # fmt: skip
    """H, or the first rows_out rows of R with zeros below, column-major (batch, rows_out, n), without the scales."""
    tile = tl.program_id(0) % (row_tiles * column_tiles)
    matrix = (tl.program_id(0) // (row_tiles * column_tiles)).to(tl.int64)
    rows = (tile % row_tiles) * BR + tl.arange(0, BR)
    cols = (tile // row_tiles) * BC + tl.arange(0, BC)
    exponent = tl.load(exponent_ptr + matrix * ld + cols, mask=cols < ld, other=0)
    inside = (rows < rows_out)[:, None] & (cols < n)[None, :]
    h = tl.load(work_ptr + matrix * m * ld + rows[:, None] * ld + cols[None, :], mask=inside, other=0.0)
    upper = rows[:, None] <= cols[None, :]
    h = tl.where(upper, times_power(h, -exponent[None, :]), 0.0 if UPPER else h)
    at = h_ptr + matrix * rows_out * n + cols[None, :].to(tl.int64) * rows_out + rows[:, None]
    tl.store(at, h, mask=inside)
