"""The panel kernel: one program factors a block column of one matrix (geqr2, larft and the larfb inside of it)."""

import triton
import triton.language as tl

from qrprof.kernels.qr.reflect import reflect, triangle


@triton.jit
def leaf_factor(h, tau, m, first, count, BM: tl.constexpr, NB: tl.constexpr, PAIRED: tl.constexpr):
    """Factor the leaf of `count` columns at (first, first) in registers (geqr2)."""
    cols = tl.arange(0, NB)
    rows = tl.arange(0, BM)
    at = h + (first + cols)[:, None] * m + first + rows[None, :]
    inside = (cols < count)[:, None] & (first + rows < m)[None, :]
    tile = tl.load(at, mask=inside, other=0.0)
    taus = tl.zeros([NB], dtype=tl.float32)
    for j in tl.static_range(NB):
        tile, one = reflect(tile, j, cols, rows, PAIRED)
        taus = tl.where(cols == j, one, taus)
    tl.store(at, tile, mask=inside)
    tl.store(tau + first + cols, taus, mask=cols < count)


@triton.jit
def load_leaf(h, m, first, count, rows, NP: tl.constexpr):
    """V of the leaf at (first, first), [rows, NP], with its unit diagonal."""
    index = tl.arange(0, NP)
    inside = (index < count)[None, :] & (rows < m)[:, None]
    v = tl.load(h + ((first + index)[None, :] * m + rows[:, None]), mask=inside, other=0.0)
    diagonal = (first + index)[None, :]
    return tl.where(rows[:, None] > diagonal, v, tl.where((rows[:, None] == diagonal) & inside, 1.0, 0.0))


@triton.jit
def leaf_products(
    h, m, start, f, count, live,
    W: tl.constexpr, NP: tl.constexpr, BR: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """P^T V, [W, NP], over the `live` columns P of the block: V^T V for those before the leaf and in it, else V^T C."""
    col = tl.arange(0, W)
    first = start + f
    sums = tl.zeros([W, NP], dtype=tl.float32)
    for r in tl.range(first, m, BR, num_stages=STAGES):
        rows = r + tl.arange(0, BR)
        inside = (col < live)[:, None] & (rows < m)[None, :]
        p = tl.load(h + ((start + col)[:, None] * m + rows[None, :]), mask=inside, other=0.0)
        upper = (col < f + count)[:, None] & (rows[None, :] <= (start + col)[:, None])
        p = tl.where(upper, tl.where(rows[None, :] == (start + col)[:, None], 1.0, 0.0), p)
        v = load_leaf(h, m, first, count, rows, NP)
        sums = tl.dot(p, v, sums, input_precision=PRECISION)
    return sums


@triton.jit
def leaf_triangle(
    products, tau, t, scratch, start, f, count,
    W: tl.constexpr, NB: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    """The leaf's T, [NP, NP], and its columns of the block's T in `t`: T12 = -T1 (V1^T V2) T2 (larft)."""
    col = tl.arange(0, W)
    index = tl.arange(0, NP)
    tl.store(scratch + col[:, None] * NP + index[None, :], products)
    tl.debug_barrier()
    gram = tl.load(scratch + (f + index)[:, None] * NP + index[None, :], mask=(f + index < W)[:, None], other=0.0)
    taus = tl.load(tau + start + f + index, mask=index < count, other=0.0)
    own = triangle(gram, taus, index, NB)
    above = tl.zeros([W, NP], dtype=tl.float32)
    for k in range(0, f, NB):
        used = index < NB
        t1 = tl.load(t + col[:, None] * W + (k + index)[None, :], mask=used[None, :], other=0.0)
        s = tl.load(scratch + (k + index)[:, None] * NP + index[None, :], mask=used[:, None], other=0.0)
        above = tl.dot(t1, s, above, input_precision="ieee")
    above = tl.dot(above, own, input_precision="ieee")
    columns = t + col[:, None] * W + (f + index)[None, :]
    tl.store(columns, -above, mask=((col < f) | (col >= f + NB))[:, None] & (index < NB)[None, :])
    block = t + (f + index)[:, None] * W + (f + index)[None, :]
    tl.store(block, own, mask=(index < NB)[:, None] & (index < NB)[None, :])
    return own


@triton.jit
def leaf_apply(
    h, m, start, f, count, live, products, own,
    W: tl.constexpr, NP: tl.constexpr, BR: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """C <- C - V T^T V^T C for the block's columns after the leaf (larfb), transposed."""
    col = tl.arange(0, W)
    factor = tl.dot(products, own, input_precision="ieee")
    rest = (col >= f + count) & (col < live)
    for r in tl.range(start + f, m, BR, num_stages=STAGES):
        rows = r + tl.arange(0, BR)
        at = h + ((start + col)[:, None] * m + rows[None, :])
        inside = rest[:, None] & (rows < m)[None, :]
        c = tl.load(at, mask=inside, other=0.0)
        v = load_leaf(h, m, start + f, count, rows, NP)
        c -= tl.dot(factor, tl.trans(v), input_precision=PRECISION)
        tl.store(at, c, mask=inside)


@triton.jit(do_not_specialize=["n", "k", "start"])
def qrprof_geqr2_larft_larfb_panel(
    h_ptr, tau_ptr, t_ptr, scratch_ptr, m, n, k, start,
    BM: tl.constexpr, W: tl.constexpr, NB: tl.constexpr, NP: tl.constexpr, BR: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr, PAIRED: tl.constexpr,
):  # fmt: skip
    """Factor columns start .. start + W of every (m, n) matrix in H from row `start` on; the block's T to t_ptr."""
    matrix = tl.program_id(0).to(tl.int64)
    h = h_ptr + matrix * m * n
    tau = tau_ptr + matrix * k
    t = t_ptr + matrix * W * W
    scratch = scratch_ptr + matrix * W * NP
    start = tl.multiple_of(start, 16)  # so that rows are read in vectors
    live = tl.minimum(k - start, W)
    for f in range(0, live, NB):
        count = tl.minimum(live - f, NB)
        leaf_factor(h, tau, m, start + f, count, BM, NB, PAIRED)
        tl.debug_barrier()
        products = leaf_products(h, m, start, f, count, live, W, NP, BR, STAGES, PRECISION)
        own = leaf_triangle(products, tau, t, scratch, start, f, count, W, NB, NP)
        if f + NB < live:
            leaf_apply(h, m, start, f, count, live, products, own, W, NP, BR, STAGES, PRECISION)
        tl.debug_barrier()


@triton.jit(do_not_specialize=["k", "batch"])
def qrprof_larft(
    h_ptr, tau_ptr, t_ptr, scratch_ptr, m, k, batch, stride_batch,
    W: tl.constexpr, NB: tl.constexpr, NP: tl.constexpr, BR: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """T, (blocks, batch, W, W), of the k reflectors in H, for every block of W of them."""
    matrix = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1).to(tl.int64)
    start = tl.program_id(1) * W
    h = h_ptr + matrix * stride_batch
    tau = tau_ptr + matrix * k
    t = t_ptr + (block * batch + matrix) * W * W
    scratch = scratch_ptr + (block * batch + matrix) * W * NP
    live = tl.minimum(k - start, W)
    for f in range(0, live, NB):
        count = tl.minimum(live - f, NB)
        products = leaf_products(h, m, start, f, count, f + count, W, NP, BR, STAGES, PRECISION)
        leaf_triangle(products, tau, t, scratch, start, f, count, W, NB, NP)
        tl.debug_barrier()
