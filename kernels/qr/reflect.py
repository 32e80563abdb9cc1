"""Device functions that the QR kernels share: one Householder reflector, the T factor, scales by powers of two.

Tiles are [rows, columns] and rows of the work matrix are contiguous: Triton deals out the last axis first, so that a
thread holds several columns of some rows, and a sum over rows takes few exchanges between threads.
"""

import triton
import triton.language as tl

# The largest entry of a scaled column is 2**48 to 2**49. Squares of entries down to 2**-60 keep all their bits, sums of
# 8192 of the largest do not overflow, and what is smaller than that (2**-108 of the column's largest) counts as zero.
SCALE = tl.constexpr(48)
FLUSH = tl.constexpr(2.0**-60)
# The smallest side of a product of the tensor cores; T is assembled from triangles of this size.
SIDE = tl.constexpr(16)


@triton.jit
def add_pairs(a0, b0, a1, b1):
    return a0 + a1, b0 + b1


@triton.jit
def reflect(tile, j, rows, cols, PAIRED: tl.constexpr):
    """Column j's reflector (larfg), v, applied to the columns after it: the tile, tau, and V^T v of those before it.

    With x column j below row j, one pass over the rows yields x^T A and row j of A; the norm, tau and v^T A follow.
    """
    x = tl.sum(tl.where(cols[None, :] == j, tile, 0.0), axis=1)
    below = tl.where(rows > j, x, 0.0)
    below = tl.where(tl.abs(below) < FLUSH, 0.0, below)
    products = tile * below[:, None]
    at_row = tl.where(rows[:, None] == j, tile, 0.0)
    if PAIRED:
        s, r = tl.reduce((products, at_row), 0, add_pairs)
    else:
        s = tl.sum(products, axis=0)
        r = tl.sum(at_row, axis=0)
    sigma = tl.sum(tl.where(cols == j, s, 0.0), axis=0)
    alpha = tl.sum(tl.where(cols == j, r, 0.0), axis=0)
    norm = tl.sqrt_rn(alpha * alpha + sigma)
    reflected = sigma != 0.0  # true for NaN
    beta = tl.where(reflected, tl.where(alpha >= 0.0, -norm, norm), alpha)
    tau = tl.where(reflected, tl.div_rn(beta - alpha, tl.where(reflected, beta, 1.0)), 0.0)
    scale = tl.where(reflected, tl.div_rn(1.0, tl.where(reflected, alpha - beta, 1.0)), 0.0)
    v = tl.where(rows == j, 1.0, below * scale)
    along = r + s * scale  # v^T A
    step = tl.where(cols > j, tau * along, 0.0)
    done = tl.where(rows > j, v, tl.where(rows == j, beta, x))
    return tl.where(cols[None, :] == j, done[:, None], tile - v[:, None] * step[None, :]), tau, along


@triton.jit
def join_pairs(t, gram, SIZE: tl.constexpr, PRECISION: tl.constexpr):
    """T of every 2 SIZE reflectors from those of SIZE on the diagonal of t, and gram = V^T V above it (larft).

    T of two blocks is T1 and T2 with -T1 (V1^T V2) T2 beside them: LAPACK 3.12's dlarft, here for all pairs at once.
    """
    index = tl.arange(0, SIDE) // SIZE
    left = index[:, None]
    beside = tl.where((left % 2 == 0) & (index[None, :] == left + 1), gram, 0.0)
    return t - tl.dot(tl.dot(t, beside, input_precision=PRECISION), t, input_precision=PRECISION)


@triton.jit
def join_triangles(t, gram, FROM: tl.constexpr, PRECISION: tl.constexpr):
    """T of SIDE reflectors, from those of every FROM of them."""
    if FROM <= 1:
        t = join_pairs(t, gram, 1, PRECISION)
    if FROM <= 2:
        t = join_pairs(t, gram, 2, PRECISION)
    if FROM <= 4:
        t = join_pairs(t, gram, 4, PRECISION)
    if FROM <= 8:
        t = join_pairs(t, gram, 8, PRECISION)
    return t


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
