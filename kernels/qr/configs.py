"""Launch settings of the Triton kernels: data only, apart from the code that reads them.

Rows and columns are in elements; a tile holds a power of two of each. `precision` is Triton's `input_precision` of a
product: "tf32x3" is as accurate as fp32 and runs on tensor cores, "ieee" is fp32 itself.
"""

from dataclasses import dataclass
from typing import Final, Literal

Precision = Literal["tf32x3", "ieee"]


@dataclass(frozen=True)
class Panel:
    """The panel kernel for up to `rows` rows: one program factors a whole block column, `leaf` columns at a time."""

    rows: int
    leaf: int
    warps: int
    block_rows: int  # of the products that update the rest of the block column
    stages: int
    precision: Precision
    paired: bool = True  # one reduction of pairs a column, not two reductions; the interpreter is slow at pairs


@dataclass(frozen=True)
class Update:
    """The trailing update: one program a matrix and tile of `columns` columns."""

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
    panels: tuple[Panel, ...]  # by rising rows
    update: Update


@dataclass(frozen=True)
class Small:
    """The whole matrix in one program, for up to `rows` x `columns`."""

    rows: int
    columns: int
    warps: int
    paired: bool = True


@dataclass(frozen=True)
class Config:
    small: tuple[Small, ...]  # the first that holds the matrix serves
    blocked: tuple[Blocked, ...]  # by rising columns; the last one is open to any number


PANELS: Final = (
    Panel(rows=64, leaf=16, warps=4, block_rows=32, stages=1, precision="tf32x3"),
    Panel(rows=128, leaf=16, warps=4, block_rows=32, stages=1, precision="tf32x3"),
    Panel(rows=256, leaf=16, warps=4, block_rows=32, stages=1, precision="tf32x3"),
    Panel(rows=512, leaf=16, warps=4, block_rows=32, stages=1, precision="tf32x3"),
    Panel(rows=1024, leaf=16, warps=8, block_rows=32, stages=1, precision="tf32x3"),
    Panel(rows=2048, leaf=8, warps=16, block_rows=32, stages=1, precision="tf32x3"),
    Panel(rows=4096, leaf=4, warps=16, block_rows=32, stages=1, precision="tf32x3"),
)
NARROW: Final = Update(columns=64, block_rows=32, warps=4, stages=2, precision="tf32x3")
WIDE: Final = Update(columns=64, block_rows=32, warps=8, stages=2, precision="tf32x3")
SM90: Final = Config(
    small=(
        Small(rows=32, columns=32, warps=1),
        Small(rows=64, columns=32, warps=2),
        Small(rows=64, columns=64, warps=4),
        Small(rows=128, columns=32, warps=4),
        Small(rows=128, columns=64, warps=8),
    ),
    blocked=(
        Blocked(columns=352, width=64, panels=PANELS, update=NARROW),
        Blocked(columns=4096, width=128, panels=PANELS, update=WIDE),
    ),
)
CONFIGS: Final = {(9, 0): SM90}  # by compute capability
DEFAULT: Final = SM90
