"""A factorisation by the included GPU kernels taken apart into LAPACK's phases, on the GPU at hand.

Nearly every launch is of one phase, which its name tells; the leaf kernel's launches are of two, geqr2 and larft, and
are shared out by the clocks that its PROFILE variant stamps.
"""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch._C._autograd import DeviceType

from qrprof.kernels.qr import blocked, rows
from qrprof.kernels.qr.configs import Config
from qrprof.kernels.timing import clock_of
from qrprof.profiler.phases import GEQR2, LARFT, pattern_of

WARM: Final = 2
ROUNDS: Final = 5


@dataclass(frozen=True)
class Probe:
    """ns of one geqrf of `batch` m x n float32 matrices: by phase, profiled, and of the plain kernels."""

    batch: int
    m: int
    n: int
    phases: dict[str, float]  # medians over ROUNDS
    launches: int
    plain_ns: float  # of a CUDA graph of the call, by events; less where an update runs beside leaves (qr/ahead.py)

    @property
    def profiled_ns(self) -> float:
        return sum(self.phases.values())


def why_not(op: str, batch: int, m: int, n: int, device: torch.device) -> str:
    """Why no kernel with a PROFILE variant factors for `op` ("geqrf", "linalg_qr"); "" where one does."""
    if not rows.usable(device):
        return "the kernels cannot be compiled for this device"
    if not batch * m * n:
        return "there is nothing to factor"
    if m > blocked.MOST_ROWS:
        return f"the kernels take up to {blocked.MOST_ROWS} rows"
    if not blocked.serves(batch, m, n, torch.float32):
        return "the kernels cannot index so many entries"
    if op == "geqrf" and blocked.small_of(blocked.config_of(device), m, n):
        return "one launch factors matrices this small: all of it is geqr2"
    return ""


def probe(batch: int, m: int, n: int, device: torch.device) -> Probe:
    """Raises ValueError where the GPU's lanes with a PROFILE variant do not serve the shape."""
    config = blocked.config_of(device)
    if reason := why_not("linalg_qr", batch, m, n, device):
        raise ValueError(reason)
    a = torch.randn(batch, m, n, device=device)
    plain = plain_ns(a, config)
    for _ in range(WARM):
        one_round(a, config)
    rounds = [one_round(a, config) for _ in range(ROUNDS)]
    phases = {name: statistics.median(one[name] for one, _ in rounds) for name in rounds[0][0]}
    return Probe(batch, m, n, phases, rounds[0][1], plain)


def plain_ns(a: Tensor, config: Config) -> float:
    clock = clock_of(a.device)
    factored(a, config)
    replay = clock.capture(lambda: factored(a, config))
    return statistics.median([clock.span(replay) for _ in range(WARM + ROUNDS)][WARM:])


def factored(a: Tensor, config: Config, stamps: list[Tensor] | None = None) -> Tensor:
    """H, as geqrf makes it of matrices that one launch would not factor."""
    return blocked.finish(blocked.factor(a, config, stamps, with_t=False), a.shape[1], upper=False)


def one_round(a: Tensor, config: Config) -> tuple[dict[str, float], int]:
    """ns by phase of one call, and its launches."""
    stamps: list[Tensor] = []
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        factored(a, config, stamps)
        torch.cuda.synchronize()
    events = sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    kernels = [(event.name(), event.duration_ns()) for event in events if of_device(event)]
    return by_phase(kernels, [geqr2_share(one) for one in stamps])


def of_device(event: Any) -> bool:
    return bool(event.device_type() == DeviceType.CUDA and "qrprof_" in event.name())


def by_phase(kernels: Sequence[tuple[str, float]], shares: Sequence[float]) -> tuple[dict[str, float], int]:
    """ns by phase of (name, ns) in order; `shares` are geqr2's of the leaf kernel's launches, in order."""
    found: dict[str, float] = defaultdict(float)
    leaves = iter(shares)
    for name, ns in kernels:
        if rows.NAME in name:
            share = next(leaves)
            found[GEQR2] += share * ns
            found[LARFT] += (1 - share) * ns
        else:
            found[pattern_of(name).phase] += ns
    return dict(found), len(kernels)


def geqr2_share(stamps: Tensor) -> float:
    """geqr2's share of a launch, by the clocks of every matrix's first block, (batch, cluster, 3)."""
    begin, stored, end = stamps[:, 0].unbind(-1)  # since 1970: as float64, 256 ns apart
    return int((stored - begin).sum()) / int((end - begin).sum())
