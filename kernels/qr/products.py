"""Products as accurate as float32's on the tensor cores."""

import triton
import triton.language as tl

# Entries of scaled columns are under 2**49, so norms of columns of 8192 under 2**56; V's columns are at most 2**0.5
# long and those of V op(T) at most 2. This far down, nothing leaves the range of float16, and what the two halves
# cannot hold is 2**-27 of the column's largest entry.
SCALED = tl.constexpr(46)


@triton.jit
def halves(x):
    """x as the sum of two float16, 22 bits in all."""
    high = x.to(tl.float16)
    return high, (x - high.to(tl.float32)).to(tl.float16)


@triton.jit
def product(a, b, DOWN: tl.constexpr, PRECISION: tl.constexpr):
    """a b, float32; for "fp16x3", entries of a and of b / 2**DOWN are not above 2**15."""
    if PRECISION == "fp16x3":
        high, low = halves(a)
        return product_of_halves(high, low, b, DOWN)
    else:
        return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def product_of_halves(a_high, a_low, b, DOWN: tl.constexpr):
    """(a_high + a_low) b without the product of the smallest halves."""
    b_high, b_low = halves(b * 2.0**-DOWN)
    sums = tl.dot(a_low, b_high)
    sums = tl.dot(a_high, b_low, sums)
    return tl.dot(a_high, b_high, sums) * 2.0**DOWN
