"""An op's call timed by the included kernels beside torch's own, on the device at hand."""

from collections.abc import Callable
from datetime import datetime
from statistics import median
from typing import Any, Final

import torch

from qrprof.kernels import qr
from qrprof.kernels.bench import INPUT_BYTES, attempt, release
from qrprof.kernels.qr import lanes
from qrprof.kernels.times import Call, Timed
from qrprof.kernels.timing import Clock, Contender, Measured, compare, warm_up
from qrprof.profiler.linalg import Signature

MOST_INPUTS: Final = 8
HOST_READINGS: Final = 9
STOCK: Final[dict[str, Callable[..., object]]] = {
    "linalg_qr": torch.linalg.qr,
    "geqrf": torch.geqrf,
    "linalg_householder_product": torch.linalg.householder_product,
}
OWN: Final[dict[str, Callable[..., object]]] = {
    "linalg_qr": qr.qr,
    "geqrf": qr.geqrf,
    "linalg_householder_product": qr.orgqr,
}


def why_not(signature: Signature, device: torch.device) -> str:
    """Why the included kernels do not serve such a call: "" where they do."""
    op, shape, dtype = signature
    if op not in OWN:
        return "no included kernel is swapped in for it"
    if lane(signature, device) == "torch":
        return f"no included kernel serves {' x '.join(map(str, shape))} of {dtype} on {device.type}"
    return ""


def lane(signature: Signature, device: torch.device) -> str:
    op, shape, dtype = signature
    return lanes.lane_of_shape(op, device, getattr(torch, dtype), torch.Size(shape))


def timed(signature: Signature, clock: Clock, device: torch.device, seconds: float, now: datetime) -> Timed | str:
    """The times of a call, or why there are none; takes about `seconds` after the first calls, which compile.

    Values do not matter to the time of a QR: inputs are normal numbers.
    """
    if reason := why_not(signature, device):
        return reason
    found = attempt(lambda: measured(signature, clock, device, seconds))
    release(device)
    if isinstance(found, str):
        return found
    op, shape, dtype = signature
    own, stock = (call(*one) for one in found)
    at = now.isoformat(timespec="seconds")
    return Timed(op=op, shape=list(shape), dtype=dtype, lane=lane(signature, device), own=own, stock=stock, at=at)


def measured(signature: Signature, clock: Clock, device: torch.device, seconds: float) -> list[tuple[Measured, float]]:
    """By the included kernels and by torch: their times, and ns of the host."""
    op, shape, dtype = signature
    matrix = torch.Size(shape).numel() * getattr(torch, dtype).itemsize
    inputs = [
        arguments(op, torch.randn(shape, dtype=getattr(torch, dtype), device=device))
        for _ in range(max(1, min(MOST_INPUTS, INPUT_BYTES // max(matrix, 1))))
    ]
    field = [warm_up(Contender(op, spread(of[op]), inputs, clock)) for of in (OWN, STOCK)]
    return list(zip(compare(field, seconds), (host_ns(one.contender) for one in field), strict=True))


def host_ns(contender: Contender) -> float:
    clock, times = contender.clock, []
    for _ in range(HOST_READINGS):
        clock.idle()
        start = clock.now()
        contender.call(contender.inputs[0])
        times.append(clock.now() - start)
    clock.idle()
    return median(times)


def arguments(op: str, matrix: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(torch.geqrf(matrix)) if op == "linalg_householder_product" else (matrix,)


def spread(function: Callable[..., object]) -> Callable[[Any], object]:
    return lambda given: function(*given)


def call(found: Measured, host: float) -> Call:
    return Call(
        host=host,
        call=found.call.median_ns,
        call_p95=found.call.p95_ns,
        device=found.device.median_ns,
        device_p05=found.device.p05_ns,
        device_p95=found.device.p95_ns,
    )
