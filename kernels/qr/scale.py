"""Copying a matrix in with every column scaled by a power of two, and R back out of it.

Column scaling is exact and leaves the reflectors as they are: R's columns alone carry the scale. It keeps the squares
of huge, denormal and single tiny columns inside fp32.
"""

import triton
import triton.language as tl

from qrprof.kernels.qr.reflect import exponent_of, times_power


@triton.jit(do_not_specialize=["n", "tiles"])
def qrprof_copy_prepare(
    a_ptr, h_ptr, exponent_ptr, m, n, tiles, a_batch, a_row, a_column,
    BC: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """H, column-major, = A of any strides with scaled columns; their exponents, (batch, n)."""
    matrix = (tl.program_id(0) // tiles).to(tl.int64)
    cols = (tl.program_id(0) % tiles) * BC + tl.arange(0, BC)
    source = a_ptr + matrix * a_batch + cols[:, None].to(tl.int64) * a_column
    largest = tl.zeros([BC], dtype=tl.float32)
    for r in range(0, m, BR):
        rows = r + tl.arange(0, BR)
        inside = (cols < n)[:, None] & (rows < m)[None, :]
        a = tl.load(source + rows[None, :].to(tl.int64) * a_row, mask=inside, other=0.0)
        largest = tl.maximum(largest, tl.max(tl.abs(a), axis=1))
    exponent = exponent_of(largest)
    tl.store(exponent_ptr + matrix * n + cols, exponent, mask=cols < n)
    for r in range(0, m, BR):
        rows = r + tl.arange(0, BR)
        inside = (cols < n)[:, None] & (rows < m)[None, :]
        a = tl.load(source + rows[None, :].to(tl.int64) * a_row, mask=inside, other=0.0)
        at = h_ptr + matrix * m * n + cols[:, None] * m + rows[None, :]
        tl.store(at, times_power(a, exponent[:, None]), mask=inside)


@triton.jit(do_not_specialize=["n", "tiles"])
def qrprof_copy_finish(h_ptr, exponent_ptr, m, n, tiles, BC: tl.constexpr, BR: tl.constexpr):
    """Take the columns' scales out of R, on and above the diagonal of H."""
    matrix = (tl.program_id(0) // tiles).to(tl.int64)
    cols = (tl.program_id(0) % tiles) * BC + tl.arange(0, BC)
    exponent = tl.load(exponent_ptr + matrix * n + cols, mask=cols < n, other=0)
    for r in range(0, tl.minimum(m, (tl.program_id(0) % tiles + 1) * BC), BR):
        rows = r + tl.arange(0, BR)
        inside = (cols < n)[:, None] & (rows < m)[None, :]
        at = h_ptr + matrix * m * n + cols[:, None] * m + rows[None, :]
        h = tl.load(at, mask=inside, other=0.0)
        upper = rows[None, :] <= cols[:, None]
        tl.store(at, tl.where(upper, times_power(h, -exponent[:, None]), h), mask=inside)  # whole vectors
