"""What stands at an op's dispatch key while it is swapped: the faster function inside its domain, stock outside.

A call that the swap declines, or that raises, is served by the stock kernel and counted with the reason. One call in
CHECK_EVERY is checked after the fact; its caller has the result all the same. After FAILURES failed checks and
exceptions the circuit opens: stock for good. Data-parallel replicas rely on equal bits, so with torch.distributed a
circuit never opens, as one rank alone would open it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qrprof.kernels import replicas
from qrprof.kernels.counters import Counters, Report
from qrprof.kernels.elsewhere import elsewhere

CHECK_EVERY = 64
FAILURES = 3
SMALL = 4096  # elements: the stock kernel takes microseconds, and may hold the GIL


@dataclass(frozen=True)
class Swap:
    """An aten op and what replaces it. All functions take the op's arguments."""

    op: str  # with overload: "linalg_qr", "_softmax"
    fast: Callable[..., Any]  # results have the meta kernel's shapes, dtypes and strides
    decline: Callable[..., str]  # why the call is outside the domain: "" if it is inside
    check: Callable[..., Tensor] | None = None  # (a number to choose a matrix by, result, *arguments) -> is it right
    stock: Callable[..., Any] | None = None  # the stock kernel by a way that releases the GIL, where there is one
    version: str = ""  # what else ranks must have in common

    @property
    def identity(self) -> str:
        return f"{self.op} {self.fast.__module__}.{self.fast.__qualname__} {self.version}"


class Guard:
    """The override of one swap at one dispatch key."""

    def __init__(self, swap: Swap, key: str) -> None:
        self.swap = swap
        self.key = key
        self.kernel = torch.library.get_kernel(f"aten::{swap.op}", key)  # before the override is installed
        self.counters = Counters()
        self.flags: dict[tuple[int, int], Tensor] = {}  # (device, stream) -> failed checks, on the device
        self.failed_on_device = 0  # as last read

    def __call__(self, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        reason = self.reason(*args, **kwargs)
        if reason:
            return self.fall_back(reason, keyset, args, kwargs)
        begin = time.perf_counter_ns()
        try:
            result = self.swap.fast(*args, **kwargs)
        except (torch.OutOfMemoryError, MemoryError):
            if replicas.several():  # one rank may be alone in this, unlike in other errors; stock would raise it too
                raise
            return self.fall_back("out of memory", keyset, args, kwargs)
        except Exception as error:  # noqa: BLE001 - whatever a kernel raises, the program goes on
            return self.fall_back(type(error).__name__, keyset, args, kwargs, error=True)
        nth = self.counters.hit(time.perf_counter_ns() - begin if self.key == "CPU" else None)
        if self.swap.check and nth % CHECK_EVERY == 0:
            self.check(self.swap.check, nth // CHECK_EVERY, result, args, kwargs)
        return result

    def reason(self, *args: Any, **kwargs: Any) -> str:
        """Why the stock kernel serves this call: "" if it does not."""
        if self.opened():
            return "circuit open"
        return self.swap.decline(*args, **kwargs) if replicas.agreed() else "ranks do not agree"

    def opened(self) -> bool:
        counters = self.counters
        failures = counters.errors + counters.failed + self.failed_on_device
        return failures >= FAILURES and not replicas.several()

    def fall_back(self, reason: str, keyset: Any, args: Any, kwargs: Any, error: bool = False) -> Any:
        self.counters.fall_back(reason, error)
        if self.swap.stock and args[0].numel() > SMALL:
            return self.swap.stock(*args, **kwargs)
        return self.kernel.call_boxed(keyset, *args, **kwargs)

    def check(self, check: Callable[..., Tensor], nth: int, result: Any, args: Any, kwargs: Any) -> None:
        """On a GPU the answer stays there, and nothing is checked while a graph is captured."""
        on_gpu = self.key == "CUDA"
        if on_gpu and torch.cuda.is_current_stream_capturing():
            return
        with torch.inference_mode(False), torch.no_grad():
            try:
                wrong = ~check(nth, result, *args, **kwargs)
            except Exception:  # noqa: BLE001 - results of another shape or kind
                wrong = torch.ones((), dtype=torch.bool, device=args[0].device)
            if on_gpu:
                self.flag(wrong.device).add_(wrong)
        self.counters.check(not on_gpu and bool(wrong))

    def flag(self, device: torch.device) -> Tensor:
        stream = torch.cuda.current_stream(device)
        place = (device.index, stream.cuda_stream)
        if place not in self.flags:
            self.flags[place] = elsewhere(lambda: zero(stream))
        return self.flags[place]

    def report(self) -> Report:
        """Reads what the checks left on GPUs, which waits for them."""
        self.failed_on_device = sum(int(flag) for flag in self.flags.values())
        return self.counters.report(self.swap.op, self.key, self.opened(), self.failed_on_device)


def zero(stream: torch.cuda.Stream) -> Tensor:
    with torch.cuda.stream(stream):
        return torch.zeros((), dtype=torch.int64, device=stream.device)
