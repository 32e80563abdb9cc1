"""T of whole block columns (larft), from the reflectors in a work matrix."""

import triton
import triton.language as tl

from qrprof.kernels.qr.panel import unit_lower
from qrprof.kernels.qr.products import halves, product_of_halves
from qrprof.kernels.qr.reflect import SIDE, join_triangles


@triton.jit(do_not_specialize=["m", "k", "block", "tiles"])
def qrprof_larft_halves(work_ptr, high_ptr, low_ptr, m, ld, k, block, tiles, W: tl.constexpr, BR: tl.constexpr):
    """V of a block column as the sum of two float16, (batch, m - start, W) each."""
    start = block * W
    matrix = (tl.program_id(0) // tiles).to(tl.int64)
    rows = start + (tl.program_id(0) % tiles) * BR + tl.arange(0, BR)
    index = tl.arange(0, W)
    v = unit_lower(work_ptr + matrix * m * ld, m, start, tl.minimum(k - start, W), rows, start + index, ld)
    high, low = halves(v)
    at = matrix * (m - start) * W + (rows - start)[:, None] * W + index[None, :]
    tl.store(high_ptr + at, high, mask=(rows < m)[:, None])
    tl.store(low_ptr + at, low, mask=(rows < m)[:, None])


@triton.jit(do_not_specialize=["tiles", "left", "t_batch"])
def qrprof_larft_y(
    high_ptr, low_ptr, t_ptr, y_high_ptr, y_low_ptr, left, tiles, t_batch,
    W: tl.constexpr, BR: tl.constexpr, TRANSPOSE: tl.constexpr,
):  # fmt: skip
    """Y = V op(T) in halves from those of V, (batch, left, W) each."""
    matrix = (tl.program_id(0) // tiles).to(tl.int64)
    rows = (tl.program_id(0) % tiles) * BR + tl.arange(0, BR)
    index = tl.arange(0, W)
    at = matrix * left * W + rows[:, None] * W + index[None, :]
    inside = (rows < left)[:, None]
    high = tl.load(high_ptr + at, mask=inside, other=0.0)
    low = tl.load(low_ptr + at, mask=inside, other=0.0)
    row, column = (index[None, :], index[:, None]) if TRANSPOSE else (index[:, None], index[None, :])
    t = tl.load(t_ptr + matrix * t_batch + row * W + column, mask=row <= column, other=0.0)
    y_high, y_low = halves(product_of_halves(high, low, t, 0))
    tl.store(y_high_ptr + at, y_high, mask=inside)
    tl.store(y_low_ptr + at, y_low, mask=inside)


@triton.jit(do_not_specialize=["m", "k", "block", "blocks", "splits"])
def qrprof_larft_gram(
    work_ptr, high_ptr, low_ptr, gram_ptr, m, ld, k, block, blocks, splits,
    W: tl.constexpr, BR: tl.constexpr, STAGES: tl.constexpr, HALVED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """V^T V, (batch, blocks, splits, W, W), of `blocks` block columns from `block` on; a split has some of the rows.

    HALVED takes V of one block column from its halves.
    """
    split = tl.program_id(0) % splits
    number = tl.program_id(0) // splits % blocks
    matrix = (tl.program_id(0) // splits // blocks).to(tl.int64)
    first = (block + number) * W
    work = work_ptr + matrix * m * ld
    halved = matrix * (m - first) * W
    index = tl.arange(0, W)
    count = tl.minimum(k - first, W)
    share = tl.cdiv(tl.cdiv(m - first, splits), BR) * BR
    begin = first + split * share
    sums = tl.zeros([W, W], dtype=tl.float32)
    for r in tl.range(begin, tl.minimum(begin + share, m), BR, num_stages=STAGES):
        rows = r + tl.arange(0, BR)
        if HALVED:
            at = halved + (rows - first)[:, None] * W + index[None, :]
            high = tl.load(high_ptr + at, mask=(rows < m)[:, None], other=0.0)
            low = tl.load(low_ptr + at, mask=(rows < m)[:, None], other=0.0)
            sums = tl.dot(tl.trans(low), high, sums)
            sums = tl.dot(tl.trans(high), low, sums)
            sums = tl.dot(tl.trans(high), high, sums)
        else:
            v = unit_lower(work, m, first, count, rows, first + index, ld)
            sums = tl.dot(tl.trans(v), v, sums, input_precision=PRECISION)
    at = gram_ptr + ((matrix * blocks + number) * splits + split) * W * W
    tl.store(at + index[:, None] * W + index[None, :], sums)


@triton.jit(do_not_specialize=["splits"])
def qrprof_larft_sum(gram_ptr, splits, W: tl.constexpr):
    """The first of every `splits` matrices, (any, splits, W, W), becomes their sum; SIDE rows a program."""
    groups: tl.constexpr = W // SIDE
    row = tl.program_id(0) % groups * SIDE + tl.arange(0, SIDE)
    gram = gram_ptr + (tl.program_id(0) // groups).to(tl.int64) * splits * W * W
    at = gram + row[:, None] * W + tl.arange(0, W)[None, :]
    sums = tl.load(at)
    for s in range(1, splits):
        sums += tl.load(at + s * W * W)
    tl.store(at, sums)


@triton.jit
def small_triangles(gram, tau, t, first, k, W: tl.constexpr, PRECISION: tl.constexpr):
    """T of every SIDE reflectors onto the diagonal of t."""
    index = tl.arange(0, SIDE)
    upper = index[:, None] <= index[None, :]
    for f in range(0, W, SIDE):
        at = f * (W + 1) + index[:, None] * W + index[None, :]
        taus = tl.load(tau + first + f + index, mask=first + f + index < k, other=0.0)
        triangle = tl.where(index[:, None] == index[None, :], taus[:, None], 0.0)
        both = tl.load(gram + at, mask=upper, other=0.0)
        tl.store(t + at, join_triangles(triangle, both, 1, PRECISION))


@triton.jit
def join_blocks(gram, t, W: tl.constexpr, SIZE: tl.constexpr, PRECISION: tl.constexpr):
    """T of every 2 SIZE reflectors from those of SIZE on the diagonal of t."""
    tl.debug_barrier()
    index = tl.arange(0, SIZE)
    upper = index[:, None] <= index[None, :]
    for f in range(0, W, 2 * SIZE):
        one = f * (W + 1) + index[:, None] * W + index[None, :]
        beside = one + SIZE
        two = beside + SIZE * W
        left = tl.load(t + one, mask=upper, other=0.0)
        right = tl.load(t + two, mask=upper, other=0.0)
        corner = tl.dot(tl.load(gram + beside), right, input_precision=PRECISION)
        tl.store(t + beside, -tl.dot(left, corner, input_precision=PRECISION))


@triton.jit(do_not_specialize=["k", "block", "blocks", "splits", "t_batch"])
def qrprof_larft_join(
    gram_ptr, tau_ptr, t_ptr, k, block, blocks, splits, t_batch,
    W: tl.constexpr, FROM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """T of block columns, (batch, blocks, W, W), upper triangles, from V^T V and tau, or T of every FROM reflectors.

    V^T V is the first of every `splits` matrices.
    """
    matrix = (tl.program_id(0) // blocks).to(tl.int64)
    number = tl.program_id(0) % blocks
    gram = gram_ptr + tl.program_id(0).to(tl.int64) * splits * W * W
    t = t_ptr + matrix * t_batch + number * W * W
    if FROM == 1:
        small_triangles(gram, tau_ptr + matrix * k, t, (block + number) * W, k, W, PRECISION)
    if FROM <= SIDE and W > SIDE:
        join_blocks(gram, t, W, SIDE, PRECISION)
    if W > 2 * SIDE:
        join_blocks(gram, t, W, 2 * SIDE, PRECISION)
    if W > 4 * SIDE:
        join_blocks(gram, t, W, 4 * SIDE, PRECISION)
