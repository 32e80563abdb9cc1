"""Times of calls: by the host's clock on a CPU, by events in the call's stream on a GPU, so that nothing waits."""

import time
from collections import deque
from typing import Any

import torch

KEPT = 4096  # times of the last calls


class Stopwatch:
    def __init__(self, on_gpu: bool) -> None:
        self.on_gpu = on_gpu
        self.taken: deque[Any] = deque(maxlen=KEPT)  # ns, or pairs of events

    def start(self, device: torch.device) -> Any:
        return event(device) if self.on_gpu else time.perf_counter_ns()

    def stop(self, started: Any, device: torch.device) -> None:
        self.taken.append((started, event(device)) if self.on_gpu else time.perf_counter_ns() - started)

    def quantiles(self) -> tuple[int | None, int | None, int | None]:
        """p50, p95 and p99 in ns, None without calls; waits for GPUs."""
        times = sorted(map(nanoseconds, self.taken.copy()))
        if not times:
            return None, None, None
        p50, p95, p99 = (times[round(q * (len(times) - 1))] for q in (0.5, 0.95, 0.99))
        return p50, p95, p99


def event(device: torch.device) -> Any:
    made = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    made.record(torch.cuda.current_stream(device))
    return made


def nanoseconds(taken: Any) -> int:
    if isinstance(taken, tuple):
        start, end = taken
        end.synchronize()
        taken = round(1e6 * start.elapsed_time(end))
    return int(taken)
