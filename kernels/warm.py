"""The first call of an op on a shape, made ahead: it compiles what later calls need."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from qrprof.kernels import qr
from qrprof.kernels.qr import lanes

Shape = tuple[int, int, int]  # batch, m, n
CALLS: Final[Mapping[str, Callable[[torch.Tensor], Any]]] = {"geqrf": qr.geqrf, "linalg_qr": qr.qr}


def warm(op: str, shape: Shape, device: torch.device) -> int | None:
    """ns of a call of `op` (a key of CALLS) on float32 matrices; None where torch itself serves it.

    Raises torch.OutOfMemoryError where the device has no room for the call.
    """
    matrices = torch.zeros(shape, device=device)
    if lanes.lane_of(op, matrices) == "torch":
        return None
    wait_for(device)
    begin = time.perf_counter_ns()
    CALLS[op](matrices)
    wait_for(device)
    return time.perf_counter_ns() - begin


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
