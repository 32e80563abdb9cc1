"""geqrf on a GPU in block columns: scale, then for each block column a panel, Y = V T^T and the trailing update."""

import math
from dataclasses import dataclass

import torch
import triton

from qrprof.kernels.qr.configs import CONFIGS, DEFAULT, Blocked, Config, Panel, Small, Update
from qrprof.kernels.qr.panel import qrprof_geqr2_larft_larfb_panel
from qrprof.kernels.qr.scale import qrprof_copy_finish, qrprof_copy_prepare
from qrprof.kernels.qr.small import qrprof_geqr2_small
from qrprof.kernels.qr.update import qrprof_larfb_update, qrprof_larft_y

MOST_ROWS = DEFAULT.blocked[-1].panels[-1].rows
DOT = 16  # no product of the tensor cores is narrower
COPY_COLUMNS, COPY_ROWS, COPY_WARPS = 32, 64, 4


@dataclass(frozen=True)
class Factored:
    """geqrf's result, (batch, m, n) and (batch, k), and T of each block of `width` reflectors where it was kept."""

    h: torch.Tensor
    tau: torch.Tensor
    t: torch.Tensor | None  # (blocks, batch, width, width), upper triangles
    width: int


def unflatten(x: torch.Tensor, batch: torch.Size) -> torch.Tensor:
    """A column-major (batch, m, n) with all dimensions of the batch, and torch's strides where a size is 1."""
    return x.mT.view(*batch, x.shape[2], x.shape[1]).mT


def serves(batch: int, m: int, n: int, dtype: torch.dtype) -> bool:
    """Whether these kernels factor `batch` matrices of (m, n); the caller sees to it that they are on a GPU."""
    return dtype == torch.float32 and m <= MOST_ROWS and m * n < 2**31 and batch * max(1, n // COPY_COLUMNS) < 2**31


def geqrf(a: torch.Tensor, config: Config | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(H, tau) as torch.geqrf: a is (..., m, n) fp32 of any strides, H column-major, tau (..., min(m, n))."""
    done = factor(a, config)
    return unflatten(done.h, a.shape[:-2]), done.tau.view(*a.shape[:-2], min(a.shape[-2:]))


def factor(a: torch.Tensor, config: Config | None = None) -> Factored:
    """geqrf with the batch flattened to one dimension, and T of the blocks for whoever forms or applies Q."""
    config = config or config_of(a.device)
    m, n = a.shape[-2:]
    k = min(m, n)
    flat = a.detach().reshape(math.prod(a.shape[:-2]), m, n)
    h = column_major(flat.shape[0], m, n, a)
    tau = a.new_empty(flat.shape[0], k)
    if not h.numel():
        return Factored(h, tau, None, 0)
    if small := small_of(config, m, n):
        factor_small(flat, h, tau, small)
        return Factored(h, tau, None, 0)
    blocked = blocked_of(config, k)
    return Factored(h, tau, factor_blocks(flat, h, tau, blocked), blocked.width)


def factor_small(a: torch.Tensor, h: torch.Tensor, tau: torch.Tensor, config: Small) -> None:
    """Fill h and tau in one launch."""
    batch, m, n = a.shape
    qrprof_geqr2_small[(batch,)](
        a, h, tau, m, n, *a.stride(),
        BM=config.rows, BN=config.columns, PAIRED=config.paired, num_warps=config.warps,
    )  # fmt: skip


def factor_blocks(a: torch.Tensor, h: torch.Tensor, tau: torch.Tensor, config: Blocked) -> torch.Tensor:
    """Fill h and tau; T of the blocks, (blocks, batch, width, width)."""
    batch, m, n = a.shape
    k, width = min(m, n), config.width
    t = a.new_empty(triton.cdiv(k, width), batch, width, width)
    y = a.new_empty(batch * m * width) if n > width else a
    scratch = a.new_empty(batch * width * DOT)
    exponent = torch.empty(batch, n, dtype=torch.int32, device=a.device)
    tiles = triton.cdiv(n, COPY_COLUMNS)
    copies = {"BC": COPY_COLUMNS, "BR": COPY_ROWS, "num_warps": COPY_WARPS}
    qrprof_copy_prepare[(batch * tiles,)](a, h, exponent, m, n, tiles, *a.stride(), **copies)
    for block, start in enumerate(range(0, k, width)):
        factor_panel(h, tau, t[block], scratch, start, width, panel_of(config, m - start))
        end = min(start + width, k)
        if end < n:
            make_y(h, k, t[block], y, start, width, config.update, transpose=True)
            update(qrprof_larfb_update, h, k, y, h, start, (end, n), width, config.update)
    qrprof_copy_finish[(batch * tiles,)](h, exponent, m, n, tiles, **copies)
    return t


def factor_panel(
    h: torch.Tensor, tau: torch.Tensor, t: torch.Tensor, scratch: torch.Tensor, start: int, width: int, panel: Panel
) -> None:
    """Factor the block column of h at `start`; its T to t, (batch, width, width)."""
    batch, m, n = h.shape
    qrprof_geqr2_larft_larfb_panel[(batch,)](
        h, tau, t, scratch, m, n, tau.shape[1], start,
        BM=panel.rows, W=width, NB=panel.leaf, NP=max(panel.leaf, DOT), BR=panel.block_rows,
        STAGES=panel.stages, PRECISION=panel.precision, PAIRED=panel.paired, num_warps=panel.warps, num_stages=1,
    )  # fmt: skip


def make_y(
    h: torch.Tensor, k: int, t: torch.Tensor, y: torch.Tensor, start: int, width: int, config: Update, *,
    transpose: bool,
) -> None:  # fmt: skip
    """y, (batch, m - start, width), = V T of the block of h at `start`, or V T^T."""
    batch, m, _ = h.shape
    tiles = triton.cdiv(m - start, config.block_rows)
    qrprof_larft_y[(batch * tiles,)](
        h, t, y, m, k, start, tiles, h.stride(0),
        W=width, BR=config.block_rows, TRANSPOSE=transpose, PRECISION=config.precision, num_warps=config.warps,
    )  # fmt: skip


def update(
    kernel: triton.JITFunction, h: torch.Tensor, k: int, y: torch.Tensor, c: torch.Tensor, start: int,
    columns: tuple[int, int], width: int, config: Update,
) -> None:  # fmt: skip
    """Rows from `start` on of these columns of c, (batch, m, any), take C - Y (V^T C) of the block of h at `start`."""
    first, last = columns
    tiles = triton.cdiv(last - first, config.columns)
    kernel[(h.shape[0] * tiles,)](
        h, y, c, h.shape[1], k, start, first, last, tiles, h.stride(0), *c.stride(),
        W=width, BC=config.columns, BR=config.block_rows, STAGES=config.stages, PRECISION=config.precision,
        num_warps=config.warps,
    )  # fmt: skip


def config_of(device: torch.device) -> Config:
    return CONFIGS.get(torch.cuda.get_device_capability(device), DEFAULT) if device.type == "cuda" else DEFAULT


def small_of(config: Config, m: int, n: int) -> Small | None:
    return next((small for small in config.small if m <= small.rows and n <= small.columns), None)


def blocked_of(config: Config, k: int) -> Blocked:
    return next((blocked for blocked in config.blocked if k <= blocked.columns), config.blocked[-1])


def panel_of(config: Blocked, rows: int) -> Panel:
    return next(panel for panel in config.panels if rows <= panel.rows)


def column_major(batch: int, m: int, n: int, like: torch.Tensor) -> torch.Tensor:
    """An empty (batch, m, n) with the strides of LAPACK's and torch's results."""
    return torch.empty_strided((batch, m, n), (m * n, 1, m), dtype=like.dtype, device=like.device)
