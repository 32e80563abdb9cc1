"""What torch.profiler costs the host, gauged: the same few calls before the profiler runs, and once more in its trace.

Where a step waits for its device, a recorded step takes as long as any other, and shows nothing of that cost. Runs
inside the user's program, between two of its steps: small tensors of its own, no random numbers.
"""

import time
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Any, Final

from qrprof.profiler.events import GAUGE
from qrprof.profiler.recording.clock import uses_device

BLOCKS: Final = 24
ROUNDS: Final = 16  # of the calls, a block


def plain_ns() -> float | None:
    """What a block takes without the profiler, ns, the median; None while a CUDA graph is captured."""
    return float(median(_blocks(nullcontext))) if _may_run() else None


def record() -> None:
    """The same blocks within a trace, each in an annotation."""
    from torch.profiler import record_function

    if _may_run():
        _blocks(lambda: record_function(GAUGE))


def _may_run() -> bool:
    import torch

    return not (uses_device() and torch.cuda.is_current_stream_capturing())


def _blocks(around: Any) -> list[int]:
    import torch

    device = "cuda" if uses_device() else "cpu"
    x, y = (torch.ones(4, 4, dtype=torch.float32, device=device) for _ in range(2))
    _block(x, y, nullcontext())
    return [_block(x, y, around()) for _ in range(BLOCKS)]


def _block(x: Any, y: Any, around: AbstractContextManager[Any]) -> int:
    """Views, an op that makes its result and ops in place, as a training step has them; the queue is empty before."""
    import torch

    if x.is_cuda:
        torch.cuda.synchronize()
    with around:
        begun = time.perf_counter_ns()
        for _ in range(ROUNDS):
            x.t()
            torch.add(x, y)
            x.mul_(y)
            y.neg_()
        return time.perf_counter_ns() - begun
