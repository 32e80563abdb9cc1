"""linalg.qr of matrices of many rows and few columns on a GPU: a tree of blocks (TSQR).

The rows are split into blocks, which are factored like a batch; their triangles R, one on top of the other, are the
next level's rows, until one block holds them. Q is not formed on the way: V and T stay, and Q of a level follows from
that of the level above, whose rows are split as the triangles were. See Demmel et al., Communication-optimal parallel
and sequential QR and LU factorizations (2012).
"""

from dataclasses import dataclass
from functools import reduce
from typing import Final

import torch
import triton
from torch import Tensor

from qrprof.kernels.qr import rows
from qrprof.kernels.qr.blocked import SIDE, Factored, blocked_of, factor_block, make_t
from qrprof.kernels.qr.configs import Config, Tall
from qrprof.kernels.qr.layout import column_major
from qrprof.kernels.qr.rows import LEAF
from qrprof.kernels.qr.tall_kernels import qrprof_copy_tall, qrprof_orgqr_signs, qrprof_orgqr_tall

LEAST_ROWS: Final = 4097  # fewer are factored in one piece
MOST_ROWS: Final = 1 << 22
MOST_COLUMNS: Final = 64
COPY_ROWS, COPY_COLUMNS, COPY_WARPS = 512, 16, 8
SIGN_WARPS = 4


@dataclass(frozen=True)
class Level:
    """The blocks of `batch` matrices of `m` rows, factored."""

    done: Factored  # (batch * blocks, rows, ld)
    batch: int
    m: int
    blocks: int  # of a matrix


def serves(m: int, n: int) -> bool:
    return LEAST_ROWS <= m <= MOST_ROWS and n <= MOST_COLUMNS


def qr(a: Tensor, config: Config, mode: str) -> tuple[Tensor, ...]:
    """R of (batch, m, n) and, unless mode is "r", Q, (batch, m, n), as torch.linalg.qr in mode "reduced"."""
    of = tall_of(config, a.shape[2])
    levels = factor(a, config, of)
    c = None
    for level in reversed(levels[1:]):
        c = form(level, c, None, of)
    signs, r = signed(levels, c, of)
    return (r,) if mode == "r" else (r, form(levels[0], c, signs, of))


def tall_of(config: Config, n: int) -> Tall:
    return next(of for of in config.tall if n <= of.columns)


def factor(a: Tensor, config: Config, of: Tall) -> list[Level]:
    """The levels from the blocks of A to the one that is a single block."""
    _, m, n = a.shape
    levels = [factor_level(a, None, m, config, of)]
    while levels[-1].blocks > 1:
        below = levels[-1]
        levels.append(factor_level(a, below, below.blocks * n, config, of))
    return levels


def factor_level(a: Tensor, below: Level | None, m: int, config: Config, of: Tall) -> Level:
    """The level of A's m rows, or of the triangles of the level below."""
    batch, n = a.shape[0], a.shape[2]
    blocks = 1 if m <= of.top else triton.cdiv(m, of.rows)
    level = Level(copied(a, below, m, blocks), batch, m, blocks)
    blocked, leaf = blocked_of(config, n), LEAF if rows.usable(a.device) else SIDE
    factor_block(level.done, config, blocked, 0, None)
    if n > leaf:
        make_t(level.done, blocked, 0, 1, None, of=leaf)
    return level


def copied(a: Tensor, below: Level | None, m: int, blocks: int) -> Factored:
    """Work matrices of the blocks, with scaled columns, and room for the rest."""
    batch, n = a.shape[0], a.shape[2]
    r, ld = triton.cdiv(m, blocks), triton.cdiv(n, LEAF) * LEAF
    done = Factored(
        work=a.new_empty(batch * blocks, r, ld), n=n, tau=a.new_empty(batch * blocks, n),
        exponent=torch.empty(batch * blocks, ld, dtype=torch.int32, device=a.device),
        t=a.new_empty(batch * blocks, 1, ld, ld), width=ld, bounded=True,
    )  # fmt: skip
    if below:
        height = below.done.work.shape[1]
        source = (below.done.work, below.done.exponent)
        strides = (below.blocks * height * ld, below.blocks * ld, 0, 0)
    else:
        height, source, strides = 0, (a, done.exponent), (a.stride(0), 0, a.stride(1), a.stride(2))
    qrprof_copy_tall[(batch * blocks * (ld // COPY_COLUMNS),)](
        *source, done.work, done.exponent, m, n, r, blocks, height, ld, *strides,
        BR=COPY_ROWS, BC=COPY_COLUMNS, STACKED=below is not None, num_warps=COPY_WARPS,
    )  # fmt: skip
    return done


def form(level: Level, c: Tensor | None, signs: Tensor | None, of: Tall) -> Tensor:
    """Q of a level, (batch, m, n), from Q of the level above, c; with signs, which the last one has, column-major."""
    done, batch, m, n = level.done, level.batch, level.m, level.done.n
    q = done.work.new_empty(batch, m, n) if signs is None else column_major(done.work, batch, m, n)
    count, r, ld = done.work.shape
    tiles = triton.cdiv(r, of.tile)
    qrprof_orgqr_tall[(count * tiles,)](
        done.work, done.t, done.work if c is None else c, done.tau if signs is None else signs, q,
        m, n, r, level.blocks, tiles, ld, int(c is not None), *q.stride(),
        N=side(n), W=ld, BR=of.tile, SIGNED=signs is not None, PRECISION=of.precision,
        num_warps=of.warps,
    )  # fmt: skip
    return q


def signed(levels: list[Level], c: Tensor | None, of: Tall) -> tuple[Tensor, Tensor]:
    """The signs of Q's columns, (batch, n), and R, (batch, n, n) column-major; c is Q of the second level."""
    first, top = levels[0], levels[-1]
    batch, n = first.batch, first.done.n
    signs, r = first.done.tau.new_empty(batch, n), column_major(first.done.work, batch, n, n)
    # A column that no first block of any level reflects is zero below the diagonal in all of A.
    reflected = reduce(torch.add, [level.done.tau[:: level.blocks] for level in levels])
    _, height, ld = first.done.work.shape
    qrprof_orgqr_signs[(batch,)](
        first.done.work, first.done.t, first.done.work if c is None else c, top.done.work, top.done.exponent,
        reflected.contiguous(), signs, r, n, height, first.blocks, top.done.work.shape[1], ld,
        int(c is not None), N=side(n), W=ld, PRECISION=of.precision, num_warps=SIGN_WARPS,
    )  # fmt: skip
    return signs, r


def side(n: int) -> int:
    """Of the tile that holds (n, n); a product's is 16 at least."""
    return max(16, 1 << (n - 1).bit_length())
