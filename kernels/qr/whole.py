"""geqrf and qr of whole matrices in one launch, a cluster of blocks each (whole.cu), and which of them it serves."""

import functools
from collections.abc import Callable
from typing import Final

import torch

from qrprof.kernels.qr.configs import Config, Whole
from qrprof.kernels.qr.cuda import addressable, compiled, properties
from qrprof.kernels.qr.layout import column_major
from qrprof.kernels.qr.rows import LEAF
from qrprof.kernels.qr.source import source

NAME: Final = "qrprof_geqr2_larft_larfb_whole"
FORMS: Final = "qrprof_geqr2_larft_larfb_orgqr_whole"  # Q too
WIDEST: Final = 4  # columns for each row
GROUP: Final = 16  # rows, as in whole.cu
ROW_BYTES: Final = 4 * LEAF  # of V in two float16
TILES_BYTES: Final = 8192  # of V^T C of a panel: 4 x 4 tiles of 16 x 8


def setting(config: Config, batch: int, m: int, n: int, device: torch.device, *, forms: bool = False) -> Whole | None:
    """The setting for `batch` matrices of (m, n); None where they do not fit, or where blocks are as fast.

    A round takes as long with one matrix as with all that the device has room for. Where there are several, the last
    one may be as good as empty: with half of the places taken, this is faster.
    """
    one = next((one for one in config.whole if m <= one.rows and n <= WIDEST * m), None)
    if one is None:
        return None
    has = properties(device)
    fits = shared_bytes(one) <= has.shared_memory_per_block_optin
    least = (one.forming if forms else one.filled) * (has.multi_processor_count // one.cluster)
    return one if fits and batch >= least else None


def factor(a: torch.Tensor, config: Whole) -> tuple[torch.Tensor, torch.Tensor]:
    """(H, tau) of (batch, m, n), not empty, H column-major."""
    batch, m, n = a.shape
    h, tau = column_major(a, batch, m, n), a.new_empty(batch, min(m, n))
    launch(a, h, tau, config, form=False)
    return h, tau


def qr(a: torch.Tensor, config: Whole) -> tuple[torch.Tensor, torch.Tensor]:
    """(Q, R) of (batch, m, n), not empty, both column-major; Q has min(m, n) columns."""
    batch, m, n = a.shape
    k = min(m, n)
    q, r = column_major(a, batch, m, k), column_major(a, batch, k, n)
    launch(a, r, q, config, form=True)
    return q, r


def launch(a: torch.Tensor, upper: torch.Tensor, others: torch.Tensor, config: Whole, *, form: bool) -> None:
    a, (batch, m, n) = addressable(a), a.shape
    clusters = min(batch, properties(a.device).multi_processor_count // config.cluster)
    reflectors = clusters * -(-min(m, n) // LEAF) * config.cluster * reflectors_bytes(config)
    scratch = torch.empty(reflectors, dtype=torch.uint8, device=a.device)
    kernel(config, a.device, form=form)(
        (clusters * config.cluster, 1, 1), (32 * config.warps, 1, 1),
        [a, upper, others, scratch, batch, m, n, *a.stride()], shared_bytes(config),
    )  # fmt: skip


@functools.lru_cache
def kernel(config: Whole, device: torch.device, *, form: bool) -> Callable[..., None]:
    name, macros = FORMS if form else NAME, macros_of(config, form=form)
    return compiled(source("whole.cu"), name, macros, device, shared=shared_bytes(config))


def macros_of(config: Whole, *, form: bool) -> dict[str, int]:
    sizes = {"WARPS": config.warps, "SLOTS": config.slots, "CLUSTER": config.cluster}
    return {**sizes, "SHARED": shared_bytes(config), "FORM": int(form)}


def reflectors_bytes(config: Whole) -> int:
    """Of a leaf in a block: T and V."""
    return ROW_BYTES * (LEAF + GROUP * config.slots * config.warps)


def shared_bytes(config: Whole) -> int:
    """At least what struct Shared takes, which the source asserts."""
    parts = TILES_BYTES * (config.warps // 2 + 1 + (2 * config.cluster if config.cluster > 1 else 0))
    steps = 8 * LEAF * (2 + config.warps + config.cluster) + 4 * LEAF * (LEAF + LEAF + 4)
    return 2 * reflectors_bytes(config) + parts + steps + 512
