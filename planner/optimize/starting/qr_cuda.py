"""QR of float32 matrices on an NVIDIA GPU: block columns of leaves, T, and updates on the tensor cores.

A leaf's setting is (rows a thread, threads of a block, blocks that share a matrix), for leaves of up to so many
rows; a product's (columns of a tile, rows of a step, warps, stages).
"""

import math
from collections.abc import Callable
from typing import Final, TypeAlias

import torch
from torch import Tensor

from qrprof.kernels.capture import captured
from qrprof.kernels.qr import blocked, form
from qrprof.kernels.qr.configs import MOST, Blocked, Config, Leaf, Rows, Small, Tiles
from qrprof.kernels.qr.layout import batched

TUNABLES = {
    "SMALL_WARPS": ((1, 1, 1, 1, 1), (1, 1, 2, 2, 4), (1, 2, 4, 4, 8), (2, 4, 8, 8, 16)),
    "WIDTH": (32, 64, 128),
    "LEAF_256": ((1, 256, 1), (2, 128, 1), (4, 64, 1)),
    "LEAF_512": ((1, 256, 2), (2, 256, 1), (4, 128, 1)),
    "LEAF_1024": ((1, 128, 8), (1, 256, 4), (2, 256, 2), (4, 128, 2)),
    "LEAF_2048": ((1, 256, 8), (2, 128, 8), (4, 128, 4), (4, 256, 2)),
    "LEAF_4096": ((2, 256, 8), (4, 128, 8), (4, 256, 4)),
    "INNER": ((64, 64, 4, 2), (32, 64, 4, 2), (32, 32, 2, 2)),
    "GRAM": ((64, 4, 2), (32, 8, 3), (32, 4, 2)),
    "OUTER": ((64, 64, 4, 2), (64, 32, 4, 3), (32, 64, 4, 2)),
    "PRECISION": ("fp16x3", "tf32x3"),
    "SPLITS": (1, 16),
    "AHEAD": (0, 66),
    "BY_LEAVES": (0, 4194304, 16777216),
}
SMALL_WARPS = (1, 2, 4, 4, 8)  # of the program of one matrix up to 32 x 32, 64 x 32, 64 x 64, 128 x 32, 128 x 64
WIDTH = 64  # of a block column
LEAF_256 = (1, 256, 1)
LEAF_512 = (1, 256, 2)
LEAF_1024 = (2, 256, 2)
LEAF_2048 = (1, 256, 8)
LEAF_4096 = (2, 256, 8)
INNER = (64, 64, 4, 2)  # update of a block column after a leaf
GRAM = (64, 4, 2)  # V^T V of a block column, one tile
OUTER = (64, 64, 4, 2)  # update of the columns after a block column
PRECISION = "fp16x3"  # of those products; float32 itself ("ieee") is far slower, to compile too
SPLITS = 16  # programs that share the rows of a tile, at most, where there are few matrices
AHEAD = 66  # matrices, up to which the update goes on beside the next leaves
BY_LEAVES = 4194304  # elements left, of all matrices, up to which each leaf is applied to all columns after it
GRAPHS = True  # launch a call as one CUDA graph, from the second of its shape on
KERNELS = ("qrprof_copy_prepare", "qrprof_geqr2_small")
ROWS_CU: Final = ""

PROGRAMS: Final = 264  # that fill an H100 or H200
MOST_ELEMENTS: Final = 1 << 26  # of a graph's matrices: a call with more keeps the device busy

Captured: TypeAlias = tuple[Tensor, torch.cuda.CUDAGraph, tuple[Tensor, ...]]  # what it reads, and what it writes
kept: dict[object, Captured | None] = {}  # graphs by op, shape and stream; None: that was called once


def tiles(of: tuple[int, int, int, int]) -> Tiles:
    return Tiles(*of, PRECISION)  # type: ignore[arg-type]


CONFIG: Final = Config(
    small=tuple(
        Small(*sides, warps)
        for sides, warps in zip(((32, 32), (64, 32), (64, 64), (128, 32), (128, 64)), SMALL_WARPS, strict=True)
    ),
    rows=(
        Rows(64, MOST, 1, 64, 1),
        Rows(128, MOST, 1, 128, 1),
        Rows(256, MOST, *LEAF_256),
        Rows(512, MOST, *LEAF_512),
        Rows(1024, MOST, *LEAF_1024),
        Rows(2048, MOST, *LEAF_2048),
        Rows(4096, MOST, *LEAF_4096),
    ),
    leaves=(Leaf(64, 2), Leaf(256, 4), Leaf(1024, 8), Leaf(2048, 16)),
    blocked=(
        Blocked(
            columns=MOST,
            width=WIDTH,
            programs=PROGRAMS,
            splits=SPLITS,
            inner=tiles(INNER),
            gram=tiles((WIDTH, *GRAM)),
            join=4,
            outer=tiles(OUTER),
            ahead=AHEAD,
            by_leaves=BY_LEAVES,
            leaf=tiles(INNER),
            applied=tiles(OUTER),
        ),
    ),
)


def config_of(device: torch.device) -> Config:
    return CONFIG


def source(name: str) -> str:
    return ROWS_CU


def built(text: str, kernel: str, options: list[str]) -> Callable[..., None]:
    found: Callable[..., None] = torch.cuda._compile_kernel(text, kernel, nvcc_options=options)
    return found


def launcher(kernel: Callable[..., None]) -> Callable[..., None]:
    return kernel


def side_stream(device: torch.device, main: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def geqrf(A: Tensor) -> tuple[Tensor, ...]:
    return blocked.geqrf(A)


def qr(A: Tensor, mode: str) -> tuple[Tensor, ...]:
    batch, m, n = A.shape[:-2], *A.shape[-2:]
    k = m if mode == "complete" else min(m, n)
    done = blocked.factor(A.reshape(math.prod(batch), m, n), CONFIG)
    R = batched(blocked.finish(done, k, upper=True), batch)
    return (R,) if mode == "r" else (R, batched(form.orgqr(done, k, CONFIG), batch))


def graphed(op: str, work: Callable[[Tensor], tuple[Tensor, ...]], A: Tensor) -> tuple[Tensor, ...]:
    """What `work` returns for A; from the second call of a shape on, its launches are replayed as one graph."""
    if not GRAPHS or not A.is_cuda or A.numel() > MOST_ELEMENTS:
        return work(A)
    key = (op, A.shape, torch.cuda.current_stream(A.device).cuda_stream)
    if key not in kept:
        kept[key] = None
        return work(A)
    found = kept[key] or capture(work, A)
    kept[key] = found
    mine, graph, outputs = found
    mine.copy_(A)
    graph.replay()
    return tuple(output.clone() for output in outputs)


def capture(work: Callable[[Tensor], tuple[Tensor, ...]], A: Tensor) -> Captured:
    mine = torch.ones(A.shape, dtype=A.dtype, device=A.device)
    work(mine)  # compiles for an input that is contiguous
    graph, outputs = captured(lambda: work(mine), A.device, "thread_local")
    return mine, graph, outputs


def geqrf_candidate(self: Tensor) -> tuple[Tensor, ...]:
    if blocked.small_of(CONFIG, *self.shape[-2:]):
        return geqrf(self)
    return graphed("geqrf", geqrf, self)


def qr_candidate(A: Tensor, mode: str = "reduced") -> tuple[Tensor, ...]:
    R, *Q = graphed(f"qr {mode}", lambda a: qr(a, mode), A)
    return (Q[0] if Q else A.new_empty(0)), R
