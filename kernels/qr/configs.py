"""Launch settings of the kernels: data only, apart from the code that reads them.

Rows and columns are in elements; a Triton tile holds a power of two of each. `precision` names how a product of float32
is made: "tf32x3" and "fp16x3" split each factor in two and run on tensor cores, as accurate as float32; "ieee" is
float32 itself.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

Precision = Literal["tf32x3", "fp16x3", "ieee"]
MOST: Final = 2**31 - 1


@dataclass(frozen=True)
class Rows:
    """The CUDA leaf kernel for up to `rows` rows and `batch` matrices, with `cluster` blocks of `threads` for each."""

    rows: int
    batch: int
    each: int  # rows' worth of entries in a thread's registers
    threads: int
    cluster: int


@dataclass(frozen=True)
class Leaf:
    """The Triton leaf kernel for up to `rows` rows."""

    rows: int
    warps: int
    paired: bool = True  # one reduction of pairs a column, not two reductions; the interpreter is slow at pairs


@dataclass(frozen=True)
class Tiles:
    """A product over the rows of a block column: one program a matrix and tile of `columns` columns."""

    columns: int
    block_rows: int
    warps: int
    stages: int
    precision: Precision


@dataclass(frozen=True)
class Blocked:
    """Blocked QR of matrices of up to `columns` reflectors: block columns of `width`."""

    columns: int
    width: int
    programs: int  # that fill the device: with fewer tiles, up to `splits` programs share the rows of one
    splits: int
    inner: Tiles  # update of the rest of a block column after a leaf
    gram: Tiles  # V^T V
    join: int  # warps of the program that makes T of it
    outer: Tiles  # update of the columns after a block column
    ahead: int  # up to so many matrices leave room beside their leaves for the update before
    by_leaves: int  # with up to so many elements left, a leaf is applied to all columns after it at once
    leaf: Tiles  # that update
    applied: Tiles  # with a caller's reflectors or matrix, which are of any size: no float16


@dataclass(frozen=True)
class Small:
    """The whole matrix in one program, for up to `rows` x `columns`."""

    rows: int
    columns: int
    warps: int
    paired: bool = True


@dataclass(frozen=True)
class Whole:
    """geqrf or qr in one launch, of up to `rows` rows: `cluster` blocks a matrix, `slots` groups of 16 rows a warp."""

    rows: int
    filled: float  # of the matrices that the device has room for at a time, at least such a share is there for geqrf
    forming: float  # and for qr
    warps: int
    slots: int
    cluster: int


@dataclass(frozen=True)
class Tall:
    """linalg.qr of up to `columns` columns in a tree of blocks."""

    columns: int
    rows: int  # of a block, at most, and at least twice as many as columns
    top: int  # with up to so many left, one block holds them
    tile: int  # rows of Q that a program forms
    warps: int
    precision: Precision


@dataclass(frozen=True)
class Config:
    small: tuple[Small, ...]  # the first that holds the matrix serves
    rows: tuple[Rows, ...]  # the first that holds the leaf serves
    leaves: tuple[Leaf, ...]  # by rising rows
    blocked: tuple[Blocked, ...]  # by rising columns; the last one is open to any number
    whole: tuple[Whole, ...] = ()  # by rising rows
    tall: tuple[Tall, ...] = ()  # by rising columns


INNER: Final = Tiles(columns=64, block_rows=64, warps=4, stages=2, precision="fp16x3")
NARROW: Final = replace(INNER, columns=32, block_rows=32)
APPLIED: Final = Tiles(columns=64, block_rows=32, warps=8, stages=2, precision="tf32x3")
WIDE: Final = Blocked(
    columns=MOST,
    width=128,
    programs=264,
    splits=16,
    inner=INNER,
    gram=Tiles(columns=128, block_rows=32, warps=8, stages=3, precision="fp16x3"),
    join=4,
    outer=Tiles(columns=64, block_rows=32, warps=4, stages=3, precision="fp16x3"),
    ahead=66,
    by_leaves=1 << 22,
    leaf=NARROW,
    applied=APPLIED,
)
SM90: Final = Config(
    small=(
        Small(rows=32, columns=32, warps=1),
        Small(rows=64, columns=32, warps=2),
        Small(rows=64, columns=64, warps=4),
        Small(rows=128, columns=32, warps=4),
        Small(rows=128, columns=64, warps=8),
    ),
    rows=(
        Rows(rows=64, batch=MOST, each=1, threads=64, cluster=1),
        Rows(rows=128, batch=MOST, each=1, threads=128, cluster=1),
        Rows(rows=256, batch=MOST, each=1, threads=256, cluster=1),
        Rows(rows=512, batch=MOST, each=2, threads=256, cluster=1),
        Rows(rows=1024, batch=33, each=1, threads=128, cluster=8),
        Rows(rows=1024, batch=MOST, each=2, threads=256, cluster=2),
        Rows(rows=2048, batch=MOST, each=2, threads=128, cluster=8),
        Rows(rows=4096, batch=MOST, each=2, threads=256, cluster=8),
        Rows(rows=8192, batch=MOST, each=4, threads=256, cluster=8),
    ),
    leaves=(
        Leaf(rows=64, warps=2),
        Leaf(rows=256, warps=4),
        Leaf(rows=1024, warps=8),
        Leaf(rows=2048, warps=16),
    ),
    blocked=(
        Blocked(
            columns=384,
            width=64,
            programs=264,
            splits=16,
            inner=INNER,
            gram=Tiles(columns=64, block_rows=64, warps=4, stages=2, precision="fp16x3"),
            join=4,
            outer=Tiles(columns=64, block_rows=64, warps=4, stages=2, precision="fp16x3"),
            ahead=66,
            by_leaves=1 << 22,
            leaf=NARROW,
            applied=APPLIED,
        ),
        replace(WIDE, columns=1024),
        replace(WIDE, inner=replace(INNER, columns=32)),
    ),
    whole=(
        Whole(rows=128, filled=0.0, forming=0.0, warps=4, slots=2, cluster=1),
        Whole(rows=192, filled=0.0, forming=0.0, warps=6, slots=2, cluster=1),
        Whole(rows=256, filled=0.0, forming=0.0, warps=8, slots=2, cluster=1),
        Whole(rows=384, filled=0.0, forming=0.05, warps=12, slots=2, cluster=1),
        Whole(rows=512, filled=0.1, forming=0.2, warps=8, slots=4, cluster=1),
        Whole(rows=1024, filled=0.33, forming=0.4, warps=8, slots=4, cluster=2),
    ),
    tall=(
        Tall(columns=16, rows=512, top=2048, tile=256, warps=4, precision="tf32x3"),
        Tall(columns=32, rows=1024, top=2048, tile=128, warps=4, precision="tf32x3"),
        Tall(columns=64, rows=1024, top=2048, tile=128, warps=8, precision="tf32x3"),
    ),
)
CONFIGS: Final = {(9, 0): SM90}  # by compute capability
DEFAULT: Final = SM90
