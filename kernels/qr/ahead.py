"""The trailing update beside the next block column: on a stream of its own, while a graph is captured.

The leaves of few matrices leave most of a GPU empty. What the next block column needs is updated first; the rest runs
beside its leaves. Outside of a capture the host's launches take longer than that saves.
"""

import ctypes
import functools
from collections.abc import Callable
from typing import Final

import torch
from torch.cuda._utils import _check_cuda, _get_gpu_runtime_library

NON_BLOCKING: Final = 1  # CU_STREAM_NON_BLOCKING: the legacy stream of another thread would break the capture


@functools.lru_cache
def side_stream(device: torch.device, main: int) -> torch.cuda.ExternalStream:
    """A stream that is used beside the stream `main` alone: one of torch's pool may be another thread's as well."""
    made = ctypes.c_void_p()
    with torch.cuda.device(device):
        _check_cuda(_get_gpu_runtime_library().cuStreamCreate(ctypes.byref(made), NON_BLOCKING))
    return torch.cuda.ExternalStream(made.value, device)  # type: ignore[no-untyped-call]


class Ahead:
    """Trailing updates of one factorisation: where `wanted`, in two parts, of which one runs beside under capture.

    The parts are the same without a capture: how many programs share the rows of a tile, and so the order of sums,
    goes by the columns of a launch, and a call must give the same bits with a graph and without.
    """

    def __init__(self, device: torch.device, *, wanted: bool) -> None:
        self.wanted = wanted
        self.side: torch.cuda.ExternalStream | None = None
        self.done: torch.Event | None = None  # of the rest of the update before
        self.kept: object = None  # what it reads: memory that is freed may be taken by the main stream at once
        if wanted and device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            self.main = torch.cuda.current_stream(device)
            self.side = side_stream(device, self.main.cuda_stream)

    def update(self, run: Callable[[int, int], None], columns: tuple[int, int, int], reads: object) -> None:
        """`run` on columns first .. last, where the next block column ends at the one between."""
        first, near, last = columns
        if not self.wanted:
            return run(first, last)
        done = self.beside(lambda: run(near, last)) if near < last else None
        self.join()
        run(first, near)
        self.done, self.kept = done, reads

    def beside(self, rest: Callable[[], None]) -> torch.Event | None:
        """The event at the end of `rest` on the side stream; None where it ran on the main one."""
        if self.side is None:
            rest()
            return None
        ready = self.main.record_event()
        with torch.cuda.stream(self.side):
            self.side.wait_event(ready)
            rest()
            end: torch.Event = self.side.record_event()
        return end

    def join(self) -> None:
        """Wait for the rest of the update before."""
        if self.done is not None:
            self.main.wait_event(self.done)
        self.done = self.kept = None
