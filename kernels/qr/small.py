"""The whole matrix in one program: scaling, factoring and scaling back in one launch, for a few dozen columns."""

import triton
import triton.language as tl

from qrprof.kernels.qr.reflect import exponent_of, reflect, times_power


@triton.jit(do_not_specialize=["n"])
def qrprof_geqr2_small(
    a_ptr, h_ptr, tau_ptr, m, n, a_batch, a_row, a_column,
    BM: tl.constexpr, BN: tl.constexpr, PAIRED: tl.constexpr,
):  # fmt: skip
    """H, column-major, and tau of one (m, n) matrix of any strides, m <= BM and n <= BN."""
    matrix = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BN)
    rows = tl.arange(0, BM)
    inside = (rows < m)[:, None] & (cols < n)[None, :]
    source = a_ptr + matrix * a_batch + rows[:, None].to(tl.int64) * a_row + cols[None, :].to(tl.int64) * a_column
    tile = tl.load(source, mask=inside, other=0.0)
    exponent = exponent_of(tl.max(tl.abs(tile), axis=0))
    tile = times_power(tile, exponent[None, :])
    taus = tl.zeros([BN], dtype=tl.float32)
    k = tl.minimum(m, n)
    for j in range(k):
        tile, one, _ = reflect(tile, j, rows, cols, PAIRED)
        taus = tl.where(cols == j, one, taus)
    tile = tl.where(rows[:, None] <= cols[None, :], times_power(tile, -exponent[None, :]), tile)
    tl.store(h_ptr + matrix * m * n + cols[None, :] * m + rows[:, None], tile, mask=inside)
    tl.store(tau_ptr + matrix * k + cols, taus, mask=cols < k)
