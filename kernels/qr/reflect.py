"""Device functions that the QR kernels share: one Householder reflector, the T factor, scales by powers of two.

Tiles are held transposed, [columns, rows]: in a column-major matrix the rows of a column are contiguous, and Triton
deals out the last axis first. So a thread holds some rows of every column of a narrow tile, and only sums over rows
cross threads.
"""

import triton
import triton.language as tl

# The largest entry of a scaled column is 2**48 to 2**49. Squares of entries down to 2**-60 keep all their bits, sums of
# 4096 of the largest do not overflow, and what is smaller than that (2**-108 of the column's largest) counts as zero.
SCALE = tl.constexpr(48)
FLUSH = tl.constexpr(2.0**-60)


@triton.jit
def add_pairs(a0, b0, a1, b1):
    return a0 + a1, b0 + b1


@triton.jit
def reflect(tile, j, cols, rows, PAIRED: tl.constexpr):
    """Column j's reflector (larfg) applied to the columns after it: the tile with v below the diagonal, and tau.

    With x column j below row j, one pass over the rows yields x^T A and row j of A; the norm, tau and v^T A follow.
    """
    x = tl.sum(tl.where(cols[:, None] == j, tile, 0.0), axis=0)
    below = tl.where(rows > j, x, 0.0)
    below = tl.where(tl.abs(below) < FLUSH, 0.0, below)
    products = tile * below[None, :]
    at_row = tl.where(rows[None, :] == j, tile, 0.0)
    if PAIRED:
        s, r = tl.reduce((products, at_row), 1, add_pairs)
    else:
        s = tl.sum(products, axis=1)
        r = tl.sum(at_row, axis=1)
    sigma = tl.sum(tl.where(cols == j, s, 0.0), axis=0)
    alpha = tl.sum(tl.where(cols == j, r, 0.0), axis=0)
    norm = tl.sqrt_rn(alpha * alpha + sigma)
    reflected = sigma != 0.0  # true for NaN
    beta = tl.where(reflected, tl.where(alpha >= 0.0, -norm, norm), alpha)
    tau = tl.where(reflected, tl.div_rn(beta - alpha, tl.where(reflected, beta, 1.0)), 0.0)
    scale = tl.where(reflected, tl.div_rn(1.0, tl.where(reflected, alpha - beta, 1.0)), 0.0)
    v = tl.where(rows == j, 1.0, below * scale)
    step = tl.where(cols > j, tau * (r + s * scale), 0.0)
    done = tl.where(rows > j, v, tl.where(rows == j, beta, x))
    return tl.where(cols[:, None] == j, done[None, :], tile - step[:, None] * v[None, :]), tau


@triton.jit
def exponent_of(largest):
    """The power of two that brings `largest` to 2**SCALE, and 0 for zero and what is not finite."""
    bits = (tl.where(largest < 2.0**-64, largest * 2.0**64, largest)).to(tl.int32, bitcast=True)
    exponent = (bits >> 23) - 127 - tl.where(largest < 2.0**-64, 64, 0)
    return tl.where((largest > 0.0) & (largest < float("inf")), SCALE - exponent, 0)


@triton.jit
def times_power(x, exponent):
    """x * 2**exponent for exponents of [-252, 254], which one float could not hold."""
    half = exponent >> 1
    rest = exponent - half
    return x * ((half + 127) << 23).to(tl.float32, bitcast=True) * ((rest + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def triangle(gram, taus, index, COUNT: tl.constexpr):
    """T of COUNT reflectors (larft, forward columnwise) from gram = V^T V and their taus, all by `index`."""
    t = tl.zeros_like(gram)
    for j in tl.static_range(COUNT):
        row = tl.sum(tl.where((index[:, None] == j) & (index[None, :] < j), gram, 0.0), axis=0)
        tau = tl.sum(tl.where(index == j, taus, 0.0), axis=0)
        column = -tau * tl.sum(t * row[None, :], axis=1)
        column = tl.where(index == j, tau, tl.where(index < j, column, 0.0))
        t = tl.where(index[None, :] == j, column[:, None], t)
    return t
