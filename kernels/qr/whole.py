"""geqrf of whole matrices in one launch, a cluster of blocks each (whole.cu), and which of them it serves."""

import functools
from typing import Any, Final

import torch

from qrprof.kernels.qr.configs import Config, Whole
from qrprof.kernels.qr.cuda import addressable, compiled
from qrprof.kernels.qr.layout import column_major
from qrprof.kernels.qr.rows import LEAF
from qrprof.kernels.qr.source import source

NAME: Final = "qrprof_geqr2_larft_larfb_whole"
WIDEST: Final = 4  # columns for each row
FULL: Final = 0.9  # of the places of several rounds
GROUP: Final = 16  # rows, as in whole.cu
ROW_BYTES: Final = 4 * LEAF  # of V in two float16
TILES_BYTES: Final = 8192  # of V^T C of a panel: 4 x 4 tiles of 16 x 8


def setting(config: Config, batch: int, m: int, n: int, device: torch.device) -> Whole | None:
    """The setting for `batch` matrices of (m, n); None where they do not fit, or where blocks are as fast."""
    one = next((one for one in config.whole if m <= one.rows and n <= WIDEST * m), None)
    if one is None:
        return None
    has: Any = torch.cuda.get_device_properties(device)
    fits = shared_bytes(one) <= has.shared_memory_per_block_optin
    return one if fits and gains(one, batch, has.multi_processor_count) else None


def gains(config: Whole, batch: int, processors: int) -> bool:
    """Whether `batch` matrices fill the device well enough: a round takes as long with one of them as with all."""
    places = processors // config.cluster
    rounds = -(-batch // places)
    return batch >= rounds * places * (config.filled if rounds == 1 else FULL)


def factor(a: torch.Tensor, config: Whole) -> tuple[torch.Tensor, torch.Tensor]:
    """(H, tau) of (batch, m, n), not empty, H column-major."""
    batch, m, n = a.shape
    k = min(m, n)
    a, h, tau = addressable(a), column_major(a, batch, m, n), a.new_empty(batch, k)
    clusters = min(batch, torch.cuda.get_device_properties(a.device).multi_processor_count // config.cluster)
    reflectors = clusters * -(-k // LEAF) * config.cluster * reflectors_bytes(config)
    scratch = torch.empty(reflectors, dtype=torch.uint8, device=a.device)
    kernel(config, a.device)(
        (clusters * config.cluster, 1, 1), (32 * config.warps, 1, 1),
        [a, h, tau, scratch, batch, m, n, *a.stride()], shared_bytes(config),
    )  # fmt: skip
    return h, tau


@functools.lru_cache
def kernel(config: Whole, device: torch.device) -> Any:
    return compiled(source("whole.cu"), NAME, macros_of(config), device, shared=shared_bytes(config))


def macros_of(config: Whole) -> dict[str, int]:
    return {"WARPS": config.warps, "SLOTS": config.slots, "CLUSTER": config.cluster, "SHARED": shared_bytes(config)}


def reflectors_bytes(config: Whole) -> int:
    """Of a leaf in a block: T and V."""
    return ROW_BYTES * (LEAF + GROUP * config.slots * config.warps)


def shared_bytes(config: Whole) -> int:
    """At least what struct Shared takes, which the source asserts."""
    parts = TILES_BYTES * (config.warps // 2 + 1 + (2 * config.cluster if config.cluster > 1 else 0))
    steps = 8 * LEAF * (2 + config.warps + config.cluster) + 4 * LEAF * (LEAF + LEAF + 4)
    return 2 * reflectors_bytes(config) + parts + steps + 512
