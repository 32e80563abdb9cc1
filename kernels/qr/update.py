"""Applying a block reflector (larfb), C <- C - V op(T) V^T C.

A tile of columns of one matrix is one program, in two passes over its rows; or several, each for some of the rows, in
two launches, where there are few matrices.
"""

import triton
import triton.language as tl

from qrprof.kernels.qr.panel import unit_lower
from qrprof.kernels.qr.products import SCALED, product, product_of_halves

# One compiled kernel for all block columns of a matrix.
APART = ("m", "k", "block", "first", "last", "tiles", "splits", "t_batch")


@triton.jit
def load_halves(high, low, first, end, rows, W: tl.constexpr):
    at = (rows - first)[:, None] * W + tl.arange(0, W)[None, :]
    inside = (rows < end)[:, None]
    return tl.load(high + at, mask=inside, other=0.0), tl.load(low + at, mask=inside, other=0.0)


@triton.jit
def apply_block(
    work_ptr, high_ptr, low_ptr, y_high_ptr, y_low_ptr, t_ptr, c_ptr, sums_ptr, m, ld, k, block, first, last, tiles,
    splits, t_batch, c_batch, c_row, c_column,
    W: tl.constexpr, TS: tl.constexpr, BC: tl.constexpr, BR: tl.constexpr, STAGES: tl.constexpr,
    TRANSPOSE: tl.constexpr, DOWN: tl.constexpr, HALVED: tl.constexpr, PRECISION: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """Columns 8 first .. last of C from row `block` W on.

    HALVED takes V and Y = V op(T) from their halves, else Y is V with T in between.
    PART 0 is all of it; 1 puts V^T C of a program's rows to sums, (batch, tiles, splits, W, BC), and 2 takes them.
    """
    start = block * W
    split = tl.program_id(0) % splits
    tile = tl.program_id(0) // splits % tiles
    matrix = (tl.program_id(0) // splits // tiles).to(tl.int64)
    columns = first * 8 + tile * BC + tl.arange(0, BC)
    index = tl.arange(0, W)
    count = tl.minimum(k - start, W)
    v = work_ptr + matrix * m * ld
    halved = matrix * (m - start) * W
    c_of = c_ptr + matrix * c_batch
    share = tl.cdiv(tl.cdiv(m - start, splits), BR) * BR
    begin = start + split * share
    end = tl.minimum(begin + share, m)
    partial = sums_ptr + (matrix * tiles + tile) * splits * W * BC + index[:, None] * BC + tl.arange(0, BC)[None, :]
    sums = tl.zeros([W, BC], dtype=tl.float32)
    if PART < 2:
        for r in tl.range(begin, end, BR, num_stages=STAGES):
            rows = r + tl.arange(0, BR)
            inside = (rows < m)[:, None] & (columns < last)[None, :]
            c = tl.load(c_of + rows[:, None] * c_row + columns[None, :] * c_column, mask=inside, other=0.0)
            if HALVED:
                high, low = load_halves(high_ptr + halved, low_ptr + halved, start, m, rows, W)
                sums += product_of_halves(tl.trans(high), tl.trans(low), c, DOWN)
            else:
                sums += product(tl.trans(unit_lower(v, m, start, count, rows, start + index, ld)), c, DOWN, PRECISION)
    if PART == 1:
        tl.store(partial + split * W * BC, sums)
    else:
        if PART == 2:
            for s in tl.range(splits, num_stages=4):
                sums += tl.load(partial + s * W * BC)
        if not HALVED:
            row, column = (index[None, :], index[:, None]) if TRANSPOSE else (index[:, None], index[None, :])
            t = tl.load(t_ptr + matrix * t_batch + row * TS + column, mask=row <= column, other=0.0)
            sums = tl.dot(t, sums, input_precision="tf32x3" if PRECISION == "fp16x3" else PRECISION)
        for r in tl.range(begin, end, BR, num_stages=STAGES):
            rows = r + tl.arange(0, BR)
            inside = (rows < m)[:, None] & (columns < last)[None, :]
            at = c_of + rows[:, None] * c_row + columns[None, :] * c_column
            c = tl.load(at, mask=inside, other=0.0)
            if HALVED:
                high, low = load_halves(y_high_ptr + halved, y_low_ptr + halved, start, m, rows, W)
                c -= product_of_halves(high, low, sums, DOWN)
            else:
                c -= product(unit_lower(v, m, start, count, rows, start + index, ld), sums, DOWN, PRECISION)
            tl.store(at, c, mask=inside)


# A kernel of its own for each routine, so that a trace tells them apart.
@triton.jit(do_not_specialize=APART)
def qrprof_larfb_update(
    work_ptr, high_ptr, low_ptr, y_high_ptr, y_low_ptr, t_ptr, c_ptr, sums_ptr, m, ld, k, block, first, last, tiles,
    splits, t_batch, c_batch, c_row, c_column,
    W: tl.constexpr, TS: tl.constexpr, BC: tl.constexpr, BR: tl.constexpr, STAGES: tl.constexpr,
    TRANSPOSE: tl.constexpr, HALVED: tl.constexpr, PRECISION: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    apply_block(
        work_ptr, high_ptr, low_ptr, y_high_ptr, y_low_ptr, t_ptr, c_ptr, sums_ptr, m, ld, k, block, first, last, tiles,
        splits, t_batch, c_batch, c_row, c_column, W, TS, BC, BR, STAGES, TRANSPOSE, SCALED, HALVED, PRECISION, PART,
    )  # fmt: skip


@triton.jit(do_not_specialize=APART)
def qrprof_orgqr_update(
    work_ptr, high_ptr, low_ptr, y_high_ptr, y_low_ptr, t_ptr, c_ptr, sums_ptr, m, ld, k, block, first, last, tiles,
    splits, t_batch, c_batch, c_row, c_column,
    W: tl.constexpr, TS: tl.constexpr, BC: tl.constexpr, BR: tl.constexpr, STAGES: tl.constexpr,
    TRANSPOSE: tl.constexpr, HALVED: tl.constexpr, PRECISION: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    apply_block(
        work_ptr, high_ptr, low_ptr, y_high_ptr, y_low_ptr, t_ptr, c_ptr, sums_ptr, m, ld, k, block, first, last, tiles,
        splits, t_batch, c_batch, c_row, c_column, W, TS, BC, BR, STAGES, TRANSPOSE, 0, HALVED, PRECISION, PART,
    )  # fmt: skip


@triton.jit(do_not_specialize=APART)
def qrprof_ormqr_update(
    work_ptr, high_ptr, low_ptr, y_high_ptr, y_low_ptr, t_ptr, c_ptr, sums_ptr, m, ld, k, block, first, last, tiles,
    splits, t_batch, c_batch, c_row, c_column,
    W: tl.constexpr, TS: tl.constexpr, BC: tl.constexpr, BR: tl.constexpr, STAGES: tl.constexpr,
    TRANSPOSE: tl.constexpr, HALVED: tl.constexpr, PRECISION: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    apply_block(
        work_ptr, high_ptr, low_ptr, y_high_ptr, y_low_ptr, t_ptr, c_ptr, sums_ptr, m, ld, k, block, first, last, tiles,
        splits, t_batch, c_batch, c_row, c_column, W, TS, BC, BR, STAGES, TRANSPOSE, 0, HALVED, PRECISION, PART,
    )  # fmt: skip
