"""A candidate for aten::geqrf on a GPU: one program a matrix, for a few dozen rows and columns.

qrprof task new --qr small --op geqrf
qrprof gate triton_qr.py --task geqrf-small
"""

import triton
import triton.language as tl

KERNELS = ("small_qr",)
TUNABLES = {"WARPS": (1, 2, 4, 8)}
WARPS = 4


@triton.jit
def exponent_of(largest):
    """The power of two that brings `largest` near 2**48, where its square is far from both ends of float32."""
    small = largest < 2.0**-64
    bits = tl.where(small, largest * 2.0**64, largest).to(tl.int32, bitcast=True)
    exponent = 48 - ((bits >> 23) - 127 - tl.where(small, 64, 0))
    return tl.where((largest > 0.0) & (largest < float("inf")), exponent, 0)


@triton.jit
def times_power(x, exponent):
    """x * 2**exponent, in two steps: one factor could be beyond float32."""
    half = exponent >> 1
    rest = exponent - half
    return x * ((half + 127) << 23).to(tl.float32, bitcast=True) * ((rest + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def small_qr(a_ptr, h_ptr, tau_ptr, m, n, a_batch, a_row, a_column, BM: tl.constexpr, BN: tl.constexpr):
    matrix = tl.program_id(0).to(tl.int64)
    rows, cols = tl.arange(0, BM), tl.arange(0, BN)
    inside = (rows < m)[:, None] & (cols < n)[None, :]
    at = a_ptr + matrix * a_batch + rows[:, None].to(tl.int64) * a_row + cols[None, :].to(tl.int64) * a_column
    tile = tl.load(at, mask=inside, other=0.0)
    exponent = exponent_of(tl.max(tl.abs(tile), axis=0))  # scaling a column scales R's column alone
    tile = times_power(tile, exponent[None, :])
    taus = tl.zeros([BN], dtype=tl.float32)
    k = tl.minimum(m, n)
    for j in range(k):
        x = tl.sum(tl.where(cols[None, :] == j, tile, 0.0), axis=1)
        below = tl.where(rows > j, x, 0.0)
        below = tl.where(tl.abs(below) < 2.0**-60, 0.0, below)
        sigma = tl.sum(below * below, axis=0)
        alpha = tl.sum(tl.where(rows == j, x, 0.0), axis=0)
        norm = tl.sqrt_rn(alpha * alpha + sigma)
        reflected = sigma != 0.0  # true for NaN
        beta = tl.where(reflected, tl.where(alpha >= 0.0, -norm, norm), alpha)
        tau = tl.where(reflected, tl.div_rn(beta - alpha, tl.where(reflected, beta, 1.0)), 0.0)
        v = tl.where(rows == j, 1.0, tl.div_rn(below, tl.where(reflected, alpha - beta, 1.0)))
        along = tl.sum(tile * v[:, None], axis=0)
        step = tl.where(cols > j, tau * along, 0.0)
        done = tl.where(rows > j, v, tl.where(rows == j, beta, x))
        tile = tl.where(cols[None, :] == j, done[:, None], tile - v[:, None] * step[None, :])
        taus = tl.where(cols == j, tau, taus)
    tile = tl.where(rows[:, None] <= cols[None, :], times_power(tile, -exponent[None, :]), tile)
    tl.store(h_ptr + matrix * m * n + cols[None, :] * m + rows[:, None], tile, mask=inside)
    tl.store(tau_ptr + matrix * k + cols, taus, mask=cols < k)


def candidate(self):
    *batch, m, n = self.shape
    flat = self.reshape(-1, m, n)
    h = flat.new_empty(*batch, n, m)  # column-major, as the op gives it
    tau = flat.new_empty(*batch, min(m, n))
    if h.numel():
        sides = max(2, triton.next_power_of_2(m)), max(2, triton.next_power_of_2(n))
        small_qr[(len(flat),)](flat, h, tau, m, n, *flat.stride(), *sides, num_warps=WARPS)
    return h.mT, tau
