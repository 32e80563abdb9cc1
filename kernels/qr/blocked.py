"""geqrf on a GPU in block columns: scale, then for each block column its leaves, T and the trailing update.

The work matrices are row-major, (batch, m, ld), with columns padded to a multiple of PADDED.
"""

import functools
import math
from dataclasses import dataclass, replace
from functools import partial

import torch
import triton

from qrprof.kernels.qr import rows
from qrprof.kernels.qr.ahead import Ahead
from qrprof.kernels.qr.configs import CONFIGS, DEFAULT, Blocked, Config, Leaf, Rows, Small, Tiles
from qrprof.kernels.qr.larft import (
    qrprof_larft_gram,
    qrprof_larft_halves,
    qrprof_larft_join,
    qrprof_larft_sum,
    qrprof_larft_y,
)
from qrprof.kernels.qr.layout import batched, column_major
from qrprof.kernels.qr.panel import qrprof_geqr2_larft_leaf
from qrprof.kernels.qr.rows import LEAF
from qrprof.kernels.qr.scale import qrprof_copy_finish, qrprof_copy_prepare
from qrprof.kernels.qr.small import qrprof_geqr2_small
from qrprof.kernels.qr.update import qrprof_larfb_update

MOST_ROWS = DEFAULT.rows[-1].rows
PADDED = LEAF
SIDE = 16  # columns of a Triton leaf
COPY_COLUMNS, COPY_ROWS, COPY_WARPS = 32, 32, 4
Y_ROWS, Y_WARPS = 64, 4
SUM_WARPS = 4
PREPARE_COLUMNS, PREPARE_ROWS, PREPARE_WARPS = 64, 64, 8

Halves = tuple[torch.Tensor, torch.Tensor]  # V in two float16, (batch, m - start, width) each
WithY = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]  # and Y = V op(T) in two


@dataclass(frozen=True)
class Factored:
    """geqrf's result in work matrices, (batch, m, ld), of n columns, and T of each block of `width` reflectors."""

    work: torch.Tensor
    n: int
    tau: torch.Tensor  # (batch, k)
    exponent: torch.Tensor  # (batch, ld)
    t: torch.Tensor  # (batch, blocks, width, width), upper triangles
    width: int
    bounded: bool  # |V| <= 1 and |T| <= 4, which float16 holds: geqrf's; a caller's reflectors may be of any size


def serves(batch: int, m: int, n: int, dtype: torch.dtype) -> bool:
    """Whether these kernels factor `batch` matrices of (m, n); the caller sees to it that they are on a GPU."""
    return dtype == torch.float32 and m <= MOST_ROWS and m * n < 2**30 and batch * max(1, m * n // 1024) < 2**31


def geqrf(a: torch.Tensor, config: Config | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(H, tau) as torch.geqrf: a is (..., m, n) fp32 of any strides, H column-major, tau (..., min(m, n))."""
    config = config or config_of(a.device)
    m, n = a.shape[-2:]
    k = min(m, n)
    flat = a.detach().reshape(math.prod(a.shape[:-2]), m, n)
    if not flat.numel():
        h, tau = column_major(a, flat.shape[0], m, n), a.new_empty(flat.shape[0], k)
    elif small := small_of(config, m, n):
        h, tau = factor_small(flat, small)
    else:
        done = factor(flat, config, with_t=False)
        h, tau = finish(done, m, upper=False), done.tau
    return batched(h, a.shape[:-2]), tau.view(*a.shape[:-2], k)


def factor_small(a: torch.Tensor, config: Small) -> tuple[torch.Tensor, torch.Tensor]:
    """(H, tau) of (batch, m, n) in one launch."""
    batch, m, n = a.shape
    h, tau = column_major(a, batch, m, n), a.new_empty(batch, min(m, n))
    qrprof_geqr2_small[(batch,)](
        a, h, tau, m, n, *a.stride(),
        BM=config.rows, BN=config.columns, PAIRED=config.paired, num_warps=config.warps,
    )  # fmt: skip
    return h, tau


def factor(
    a: torch.Tensor, config: Config, stamps: list[torch.Tensor] | None = None, *, with_t: bool = True
) -> Factored:
    """geqrf of (batch, m, n), not empty, left in work matrices, `with_t` for whoever forms or applies Q.

    `stamps` takes the clocks of the CUDA leaf kernel's PROFILE variant, a tensor a launch.
    """
    batch, m, n = a.shape
    blocked = blocked_of(config, min(m, n))
    done = unfactored(a, blocked.width)
    ahead = Ahead(a.device, wanted=batch <= blocked.ahead)
    size, blocks = leaf_size(a.device), done.t.shape[1]
    large = next((block for block in range(blocks) if left_of(done, block) <= blocked.by_leaves), blocks)
    for block in range(large):
        end = factor_block(done, config, blocked, block, stamps)
        halves = halves_of(done, block, blocked.outer) if end < n else None
        make_t(done, blocked, block, 1, halves, of=size)
        if end < n:
            v = with_y(halves, done.t[:, block], transpose=True)
            run = partial(update, qrprof_larfb_update, done, blocked.outer, blocked, block, done.work, v)
            ahead.update(run, (end, min(end + blocked.width, n), n), v)
    for leaf in range(large * blocked.width, min(m, n), size):
        one, end = factored_leaf(done, config, leaf, stamps), leaf + size
        if end < n:
            run = partial(update, qrprof_larfb_update, one, blocked.leaf, blocked, leaf // size, done.work, None)
            ahead.update(run, (end, min(end + size, n), n), one.t)
    ahead.join()
    if with_t and large < blocks:
        make_t(done, blocked, large, blocks - large, None, of=size)
    return done


def left_of(done: Factored, block: int) -> int:
    """Elements of all matrices from a block column's first row and column on."""
    start = block * done.width
    return done.work.shape[0] * (done.work.shape[1] - start) * (done.n - start)


def unfactored(a: torch.Tensor, width: int) -> Factored:
    """Work matrices of (batch, m, n) with scaled columns, and room for the rest."""
    batch, m, n = a.shape
    k, ld = min(m, n), triton.cdiv(n, PADDED) * PADDED
    t = a.new_empty(batch, triton.cdiv(k, width), width, width)
    if k % width:
        t[:, -1] = 0.0  # T of leaves that are not there
    done = Factored(
        work=a.new_empty(batch, m, ld), n=n, tau=a.new_empty(batch, k),
        exponent=torch.empty(batch, ld, dtype=torch.int32, device=a.device),
        t=t, width=width, bounded=True,
    )  # fmt: skip
    tiles = triton.cdiv(ld, PREPARE_COLUMNS)
    qrprof_copy_prepare[(batch * tiles,)](
        a, done.work, done.exponent, m, n, ld, tiles, *a.stride(),
        BC=PREPARE_COLUMNS, BR=PREPARE_ROWS, num_warps=PREPARE_WARPS,
    )  # fmt: skip
    return done


def finish(done: Factored, height: int, *, upper: bool) -> torch.Tensor:
    """H, (batch, m, n) column-major, or with `upper` the first `height` rows of R."""
    batch, m, ld = done.work.shape
    h = column_major(done.work, batch, height, done.n)
    row_tiles, column_tiles = triton.cdiv(height, COPY_ROWS), triton.cdiv(done.n, COPY_COLUMNS)
    qrprof_copy_finish[(batch * row_tiles * column_tiles,)](
        done.work, done.exponent, h, m, done.n, ld, height, row_tiles, column_tiles,
        BC=COPY_COLUMNS, BR=COPY_ROWS, UPPER=upper, num_warps=COPY_WARPS,
    )  # fmt: skip
    return h


def factor_block(
    done: Factored, config: Config, blocked: Blocked, block: int, stamps: list[torch.Tensor] | None
) -> int:
    """Factor one block column, leaf by leaf, with T of the leaves on the diagonal of its own; the column it ends at."""
    start, size = block * done.width, leaf_size(done.work.device)
    end = start + triton.cdiv(min(done.width, done.tau.shape[1] - start), size) * size
    for leaf in range(start, end, size):
        one = factored_leaf(done, config, leaf, stamps)
        if leaf + size < end:
            at = leaf // size
            update(qrprof_larfb_update, one, blocked.inner, blocked, at, done.work, None, leaf + size, end)
    return int(end)


def factored_leaf(done: Factored, config: Config, leaf: int, stamps: list[torch.Tensor] | None) -> Factored:
    """Factor the leaf that begins at a column, with its T on the diagonal of its block column's; what applies it."""
    batch, m, ld = done.work.shape
    block, within = divmod(leaf, done.width)
    t, size = done.t[:, block, within:, within:], leaf_size(done.work.device)
    if size == LEAF:
        rows.factor_leaf(done.work, done.tau, t, leaf, rows_of(config, batch, m - leaf), stamps)
    else:
        of = leaf_of(config, m - leaf)
        inner = blocked_of(config, done.tau.shape[1]).inner
        qrprof_geqr2_larft_leaf[(batch,)](
            done.work, done.tau, t, m, ld, done.tau.shape[1], leaf // size, t.stride(0),
            BM=of.rows, W=done.width, PRECISION=exact(inner), PAIRED=of.paired, num_warps=of.warps,
        )  # fmt: skip
    return replace(done, t=t[:, None, :size], width=size)


def leaf_size(device: torch.device) -> int:
    return LEAF if rows.usable(device) else SIDE


def halves_of(done: Factored, block: int, config: Tiles) -> Halves | None:
    """V of a block column in two float16, (batch, m - start, width) each, where products are made of those."""
    if config.precision != "fp16x3":
        return None
    batch, m, ld = done.work.shape
    left, tiles = m - block * done.width, triton.cdiv(m - block * done.width, COPY_ROWS)
    high, low = (done.work.new_empty(batch, left, done.width, dtype=torch.float16) for _ in range(2))
    qrprof_larft_halves[(batch * tiles,)](
        done.work, high, low, m, ld, done.tau.shape[1], block, tiles, W=done.width, BR=COPY_ROWS, num_warps=COPY_WARPS
    )
    return high, low


def with_y(v: Halves | None, t: torch.Tensor, *, transpose: bool) -> WithY | None:
    """V and Y = V op(T), with T (batch, width, width), in halves, where V is."""
    if v is None:
        return None
    high, low = v
    batch, left, width = high.shape
    y_high, y_low = torch.empty_like(high), torch.empty_like(low)
    tiles = triton.cdiv(left, Y_ROWS)
    qrprof_larft_y[(batch * tiles,)](
        high, low, t, y_high, y_low, left, tiles, t.stride(0),
        W=width, BR=Y_ROWS, TRANSPOSE=transpose, num_warps=Y_WARPS,
    )  # fmt: skip
    return high, low, y_high, y_low


def make_t(
    done: Factored, blocked: Blocked, block: int, blocks: int, v: Halves | None, *, of: int,
) -> None:  # fmt: skip
    """T of `blocks` block columns from `block` on, where that of every `of` reflectors is there; 1: where tau is."""
    batch, m, ld = done.work.shape
    k, tiles = done.tau.shape[1], blocked.gram
    splits = splits_of(blocked, batch * blocks, m - block * done.width, tiles)
    gram = done.work.new_empty(batch, blocks, splits, done.width, done.width)
    high, low = v or (done.work, done.work)
    qrprof_larft_gram[(batch * blocks * splits,)](
        done.work, high, low, gram, m, ld, k, block, blocks, splits,
        W=done.width, BR=tiles.block_rows, STAGES=tiles.stages, HALVED=v is not None, PRECISION=exact(tiles),
        num_warps=tiles.warps,
    )  # fmt: skip
    if splits > 1:
        qrprof_larft_sum[(batch * blocks * (done.width // SIDE),)](gram, splits, W=done.width, num_warps=SUM_WARPS)
    qrprof_larft_join[(batch * blocks,)](
        gram, done.tau, done.t[:, block], k, block, blocks, splits, done.t.stride(0),
        W=done.width, FROM=of, PRECISION=exact(tiles), num_warps=blocked.join, num_stages=1,
    )  # fmt: skip


def update(
    kernel: triton.JITFunction, done: Factored, tiles: Tiles, blocked: Blocked, block: int, c: torch.Tensor,
    v: WithY | None, first: int, last: int, *, transpose: bool = True,
) -> None:  # fmt: skip
    """Columns first .. last of c, (batch, m, any), take C - V op(T) V^T C of a block; `first` is a multiple of 8."""
    batch, m, ld = done.work.shape
    count = triton.cdiv(last - first, tiles.columns)
    splits = splits_of(blocked, batch * count, m - block * done.width, tiles)
    t = done.t[:, min(block, done.t.shape[1] - 1)]  # of a leaf there is one
    sums = c if splits == 1 else c.new_empty(batch * count * splits * done.width * tiles.columns)
    halves = v or (done.work,) * 4
    for part in (0,) if splits == 1 else (1, 2):
        kernel[(batch * count * splits,)](
            done.work, *halves, t, c, sums, m, ld, done.tau.shape[1], block, first // 8, last,
            count, splits, t.stride(0), *c.stride(),
            W=done.width, TS=t.stride(1), BC=tiles.columns, BR=tiles.block_rows, STAGES=tiles.stages,
            TRANSPOSE=transpose, HALVED=v is not None, PRECISION=tiles.precision, PART=part, num_warps=tiles.warps,
        )  # fmt: skip


def splits_of(blocked: Blocked, programs: int, rows: int, tiles: Tiles) -> int:
    """How many programs share the rows of a tile: enough to fill the device, and each with work."""
    return max(1, min(blocked.programs // programs, blocked.splits, rows // (2 * tiles.block_rows)))


def exact(tiles: Tiles) -> str:
    """The precision of the few products whose factors were not brought to the size that float16 needs."""
    return "tf32x3" if tiles.precision == "fp16x3" else tiles.precision


@functools.lru_cache
def config_of(device: torch.device) -> Config:
    return CONFIGS.get(torch.cuda.get_device_capability(device), DEFAULT) if device.type == "cuda" else DEFAULT


def small_of(config: Config, m: int, n: int) -> Small | None:
    return next((small for small in config.small if m <= small.rows and n <= small.columns), None)


def blocked_of(config: Config, k: int) -> Blocked:
    return next((blocked for blocked in config.blocked if k <= blocked.columns), config.blocked[-1])


def leaf_of(config: Config, rows: int) -> Leaf:
    return next(leaf for leaf in config.leaves if rows <= leaf.rows)


def rows_of(config: Config, batch: int, rows: int) -> Rows:
    return next(of for of in config.rows if rows <= of.rows and batch <= of.batch)
