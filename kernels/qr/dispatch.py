"""Which lane serves a QR call: rules as data, in order; the first that fits decides, and "torch" is the rest.

A decision is a function of op, device type, dtype and shape alone, never of the values, the load or the number of
threads: replicas of a data-parallel program decide alike.
"""

from collections.abc import Container
from dataclasses import dataclass
from typing import Final, Literal

Lane = Literal["torch", "cpu-batched", "cuda-blocked", "cuda-tall", "triton-small", "triton-blocked"]

MOST: Final = 2**31 - 1
WIDEST: Final = 2**18 - 1  # of 4096 rows: the blocked kernels' offsets within a matrix are of 32 bits
# Work of a call is batch * (m n min(m, n) + A_MATRIX) for factoring and again for forming Q; a matrix costs that much.
A_MATRIX: Final = 3_000
PASSES: Final = {"geqrf": 1, "linalg_householder_product": 1, "ormqr": 1, "linalg_qr": 2}


@dataclass(frozen=True)
class Rule:
    """A lane and its domain; bounds are inclusive."""

    lane: Lane
    device: str
    dtypes: tuple[str, ...]
    batch: tuple[int, int] = (1, MOST)
    rows: tuple[int, int] = (1, MOST)
    columns: tuple[int, int] = (1, MOST)
    least_work: int = 0
    ops: tuple[str, ...] = tuple(PASSES)


RULES: Final = (
    # Up to about 100 columns MKL uses one thread, above that several, and not always to its advantage. Between the two
    # rules, and where there is less work than 2 ms, sharing the batch gained nothing: benchmarks/qr_cpu.py.
    Rule("cpu-batched", "cpu", ("float32", "float64"), (4, MOST), (1, 2048), (1, 96), least_work=16_000_000),
    Rule("cpu-batched", "cpu", ("float32", "float64"), (16, MOST), (1, 1024), (160, 512), least_work=16_000_000),
    # On an H200, an eager call of each was timed beside torch's for 8 to 4096 columns and 1 to 2000 matrices
    # (benchmarks/qr_dispatch.py): qr gained at all of them, geqrf from 48 columns on and at 32 from two matrices on,
    # and applying Q from 64 to 1024. Forming Q of a caller's reflectors was timed with products of float16, which do
    # not hold them all: it is given where applying them, twice the work by TF32, took less than torch's forming.
    Rule("cuda-blocked", "cuda", ("float32",), (1, MOST), (48, 4096), (48, WIDEST), ops=("geqrf",)),
    Rule("cuda-blocked", "cuda", ("float32",), (2, MOST), (24, 4096), (24, WIDEST), ops=("geqrf",)),
    Rule("cuda-blocked", "cuda", ("float32",), (1, MOST), (1, 4096), (1, WIDEST), ops=("linalg_qr",)),
    Rule(
        "cuda-blocked", "cuda", ("float32",), (1, MOST), (16, 2048), (16, WIDEST), ops=("linalg_householder_product",)
    ),
    Rule("cuda-blocked", "cuda", ("float32",), (1, MOST), (64, 1024), (64, WIDEST), ops=("ormqr",)),
    # Few columns of more rows than one leaf should hold, in a tree of blocks. All of Q, m x m, stays torch's (`lanes`).
    Rule("cuda-tall", "cuda", ("float32",), (1, 8), (4097, 1 << 22), (1, 64), ops=("linalg_qr",)),
    # Without a CUDA compiler, one program factors a leaf of a matrix: with few of them, the vendor's way of using the
    # whole GPU for one wins.
    Rule("triton-small", "cuda", ("float32",), (2, MOST), (1, 128), (1, 64)),
    Rule("triton-blocked", "cuda", ("float32",), (6, MOST), (1, 512), (1, 512)),
    Rule("triton-blocked", "cuda", ("float32",), (10, MOST), (1, 1024), (1, 1024)),
)


def lane(op: str, device: str, dtype: str, batch: int, m: int, n: int, without: Container[str] = ()) -> Lane:
    """The lane of `op` ("geqrf", "linalg_householder_product", "ormqr" or "linalg_qr") on `batch` m x n matrices.

    `device` is a device type, `dtype` a name such as "float32"; for the ops that take reflectors, m x n is their shape.
    `without` names lanes that this machine does not have.
    """
    work = PASSES[op] * batch * (m * n * min(m, n) + A_MATRIX)
    for rule in RULES:
        if (
            device == rule.device
            and rule.lane not in without
            and op in rule.ops
            and dtype in rule.dtypes
            and rule.batch[0] <= batch <= rule.batch[1]
            and rule.rows[0] <= m <= rule.rows[1]
            and rule.columns[0] <= n <= rule.columns[1]
            and work >= rule.least_work
        ):
            return rule.lane
    return "torch"
