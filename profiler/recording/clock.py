"""Step boundaries timed without disturbing the program: device events, or the host's clock.

A synchronisation at each step would change the program. An event is put in the current stream at
each boundary instead, and read once the block is over.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

DEVICE_EVENTS = "device events"
HOST_CLOCK = "host clock"


@dataclass(frozen=True)
class Stamp:
    host_ns: int
    event: Any  # torch.cuda.Event, or None


def stamp() -> Stamp:
    """Mark a step boundary: the host's clock, and an event where the program uses the device."""
    return Stamp(time.perf_counter_ns(), device_event())


def uses_device() -> bool:
    """Whether the program has initialised CUDA; asking never initialises it."""
    import torch

    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def device_event() -> Any:
    import torch

    if not uses_device() or torch.cuda.is_current_stream_capturing():
        return None
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def durations_ns(stretches: Sequence[Sequence[Stamp]]) -> tuple[str, list[int]]:
    """(clock, ns between each stamp of a stretch and the next). Waits for the last event."""
    pairs = [pair for stretch in stretches for pair in pairwise(stretch)]
    if not pairs or any(before.event is None or after.event is None for before, after in pairs):
        return HOST_CLOCK, [after.host_ns - before.host_ns for before, after in pairs]
    pairs[-1][1].event.synchronize()
    return DEVICE_EVENTS, [round(before.event.elapsed_time(after.event) * 1e6) for before, after in pairs]
