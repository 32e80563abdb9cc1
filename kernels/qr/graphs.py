"""A CUDA graph for each shape and stream: many launches of small matrices cost the host more than the device.

The first call of a shape runs as it is, which also compiles; the second one is captured. A replay copies the inputs in
and the results out to new tensors. A call under capture, or of matrices so large that the device has enough to do, runs
as it is.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from qrprof.kernels.capture import NoGraph, captured
from qrprof.kernels.elsewhere import elsewhere

Work = Callable[..., tuple[Tensor, ...]]
MOST: Final = 32  # graphs that are kept
MOST_ELEMENTS: Final = 1 << 26  # of a call's matrices
MOST_BYTES: Final = 1 / 8  # of the device's memory, for all graphs on it


@dataclass(frozen=True)
class Captured:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    bytes: int  # of device memory that it holds

    def replay(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        for mine, given in zip(self.inputs, inputs, strict=True):
            mine.copy_(given.detach())
        self.graph.replay()
        return tuple(output.clone() for output in self.outputs)


class Graphs:
    """The graphs of a process, the last used last; the others go where they hold too much memory."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.kept: OrderedDict[Any, Captured] = OrderedDict()
        self.seen: set[Any] = set()
        self.failed: set[Any] = set()

    def run(self, op: str, work: Work, *inputs: Tensor) -> tuple[Tensor, ...]:
        """What `work` returns for these inputs, on the first one's device; `op` names all else that it depends on."""
        if not served(inputs):
            return work(*inputs)
        device, stream = inputs[0].device, torch.cuda.current_stream(inputs[0].device).cuda_stream
        key = (op, device, stream, tuple((x.shape, x.dtype) for x in inputs))
        with self.lock, torch.inference_mode(False), torch.no_grad():
            found = self.find(key, work, inputs)
            return found.replay(inputs) if found else work(*inputs)

    def find(self, key: Any, work: Work, inputs: tuple[Tensor, ...]) -> Captured | None:
        """The graph of `key`, captured where this is its second call or one after it was let go."""
        if key in self.failed or key not in self.seen:
            self.seen.add(key)
            return None
        if key not in self.kept:
            elsewhere(lambda: self.capture(key, work, inputs))
        else:
            self.kept.move_to_end(key)
        return self.kept.get(key)

    def capture(self, key: Any, work: Work, inputs: tuple[Tensor, ...]) -> None:
        """Keep a graph of the work, or that there is none."""
        device = inputs[0].device
        before = torch.cuda.memory_reserved(device)
        with torch.cuda.device(device), torch.no_grad():
            mine = tuple(torch.ones(x.shape, dtype=x.dtype, device=device) for x in inputs)
            work(*mine)  # contiguous inputs may be of another compiled kernel than the caller's
            try:
                graph, outputs = captured(lambda: work(*mine), device, "thread_local")
            except NoGraph:
                self.failed.add(key)
                return
        held = max(0, torch.cuda.memory_reserved(device) - before)
        self.kept[key] = Captured(graph, mine, outputs, held)
        most = MOST_BYTES * torch.cuda.get_device_properties(device).total_memory
        while len(self.kept) > MOST or (len(self.kept) > 1 and self.held(device) > most):
            self.kept.popitem(last=False)

    def held(self, device: torch.device) -> int:
        """Bytes of device memory that the graphs hold."""
        return sum(one.bytes for key, one in self.kept.items() if key[1] == device)


def served(inputs: tuple[Tensor, ...]) -> bool:
    return (
        inputs[0].is_cuda
        and sum(x.numel() for x in inputs) <= MOST_ELEMENTS
        and not torch.cuda.is_current_stream_capturing()
    )


GRAPHS: Final = Graphs()
