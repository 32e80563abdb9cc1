"""Applying a block reflector (larfb) with Y = V T^T made once: C <- C - Y (V^T C), in two passes over C."""

import triton
import triton.language as tl

# One compiled kernel for all block columns of a matrix.
APART = ("k", "start", "first", "last", "tiles")


@triton.jit(do_not_specialize=["k", "start", "tiles"])
def qrprof_larft_y(
    h_ptr, t_ptr, y_ptr, m, k, start, tiles, stride_batch,
    W: tl.constexpr, BR: tl.constexpr, TRANSPOSE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Y = V op(T), (batch, m - start, W), row-major, of the block of reflectors that begins at `start`."""
    start = tl.multiple_of(start, 16)  # so that rows are read in vectors
    matrix = (tl.program_id(0) // tiles).to(tl.int64)
    rows = start + (tl.program_id(0) % tiles) * BR + tl.arange(0, BR)
    index = tl.arange(0, W)
    live = tl.minimum(k - start, W)
    v = load_v(h_ptr + matrix * stride_batch, m, start, live, rows, index)
    row, column = (index[None, :], index[:, None]) if TRANSPOSE else (index[:, None], index[None, :])
    inside = (row <= column) & (column < live)
    t = tl.load(t_ptr + matrix * W * W + row * W + column, mask=inside, other=0.0)
    y = tl.dot(v, t, input_precision=PRECISION)
    at = y_ptr + matrix * (m - start) * W + (rows - start)[:, None] * W + index[None, :]
    tl.store(at, y, mask=(rows < m)[:, None])


@triton.jit
def load_v(h, m, start, live, rows, index):
    """V of the block at (start, start), [rows, index], with its unit diagonal."""
    inside = (index < live)[None, :] & (rows < m)[:, None]
    diagonal = (start + index)[None, :]
    v = tl.load(h + (diagonal * m + rows[:, None]), mask=inside, other=0.0)
    return tl.where(rows[:, None] > diagonal, v, tl.where((rows[:, None] == diagonal) & inside, 1.0, 0.0))


@triton.jit
def apply_block(
    h_ptr, y_ptr, c_ptr, m, k, start, first, last, tiles, h_batch, c_batch, c_row, c_column,
    W: tl.constexpr, BC: tl.constexpr, BR: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Columns first .. last of C from row `start` on, a tile of BC columns of one matrix a program; C is transposed."""
    start = tl.multiple_of(start, 16)  # so that rows are read in vectors
    matrix = (tl.program_id(0) // tiles).to(tl.int64)
    cols = first + (tl.program_id(0) % tiles) * BC + tl.arange(0, BC)
    index = tl.arange(0, W)
    live = tl.minimum(k - start, W)
    h = h_ptr + matrix * h_batch
    y_of = y_ptr + matrix * (m - start) * W
    c_of = c_ptr + matrix * c_batch
    sums = tl.zeros([BC, W], dtype=tl.float32)
    for r in tl.range(start, m, BR, num_stages=STAGES):
        rows = r + tl.arange(0, BR)
        inside = (cols < last)[:, None] & (rows < m)[None, :]
        c = tl.load(c_of + (cols[:, None] * c_column + rows[None, :] * c_row), mask=inside, other=0.0)
        v = load_v(h, m, start, live, rows, index)
        sums = tl.dot(c, v, sums, input_precision=PRECISION)
    for r in tl.range(start, m, BR, num_stages=STAGES):
        rows = r + tl.arange(0, BR)
        inside = (cols < last)[:, None] & (rows < m)[None, :]
        c = tl.load(c_of + (cols[:, None] * c_column + rows[None, :] * c_row), mask=inside, other=0.0)
        y = tl.load(y_of + ((rows - start)[None, :] * W + index[:, None]), mask=(rows < m)[None, :], other=0.0)
        c -= tl.dot(sums, y, input_precision=PRECISION)
        tl.store(c_of + (cols[:, None] * c_column + rows[None, :] * c_row), c, mask=inside)


# A kernel of its own for each routine, so that a trace tells them apart.
@triton.jit(do_not_specialize=APART)
def qrprof_larfb_update(
    h_ptr, y_ptr, c_ptr, m, k, start, first, last, tiles, h_batch, c_batch, c_row, c_column,
    W: tl.constexpr, BC: tl.constexpr, BR: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    apply_block(
        h_ptr, y_ptr, c_ptr, m, k, start, first, last, tiles, h_batch, c_batch, c_row, c_column,
        W, BC, BR, STAGES, PRECISION,
    )  # fmt: skip


@triton.jit(do_not_specialize=APART)
def qrprof_orgqr_update(
    h_ptr, y_ptr, c_ptr, m, k, start, first, last, tiles, h_batch, c_batch, c_row, c_column,
    W: tl.constexpr, BC: tl.constexpr, BR: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    apply_block(
        h_ptr, y_ptr, c_ptr, m, k, start, first, last, tiles, h_batch, c_batch, c_row, c_column,
        W, BC, BR, STAGES, PRECISION,
    )  # fmt: skip


@triton.jit(do_not_specialize=APART)
def qrprof_ormqr_update(
    h_ptr, y_ptr, c_ptr, m, k, start, first, last, tiles, h_batch, c_batch, c_row, c_column,
    W: tl.constexpr, BC: tl.constexpr, BR: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    apply_block(
        h_ptr, y_ptr, c_ptr, m, k, start, first, last, tiles, h_batch, c_batch, c_row, c_column,
        W, BC, BR, STAGES, PRECISION,
    )  # fmt: skip
