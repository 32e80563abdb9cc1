"""What stands at an op's dispatch key while it is swapped: the faster function inside its domain, stock outside.

A call that the swap declines, or that raises, is served by the stock kernel and counted with the reason. One call in
`Mode.check_every` is checked after the fact; its caller has the result all the same. After FAILURES failed checks and
exceptions the circuit opens: stock for good. Data-parallel replicas rely on equal bits, so with torch.distributed a
circuit never opens, as one rank alone would open it.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qrprof.kernels import replicas
from qrprof.kernels.agreement import agrees, difference
from qrprof.kernels.counters import Counters, Report
from qrprof.kernels.elsewhere import elsewhere
from qrprof.kernels.modes import Mode
from qrprof.kernels.scalars import with_numbers
from qrprof.kernels.stopwatch import Stopwatch
from qrprof.kernels.swappable import overload

FAILURES = 3
SMALL = 4096  # elements: the stock kernel takes microseconds, and may hold the GIL
GRAPH = "a graph is captured"
OUT_OF_MEMORY = "out of memory"
NO_MEMORY = (torch.OutOfMemoryError, MemoryError)


@dataclass(frozen=True)
class Swap:
    """An aten op and what replaces it. All functions take the op's arguments."""

    op: str  # with overload: "linalg_qr", "_softmax"
    fast: Callable[..., Any]  # results have the meta kernel's shapes, dtypes and strides
    decline: Callable[..., str]  # why the call is outside the domain: "" if it is inside
    check: Callable[..., Tensor] | None = None  # (a number to choose a matrix by, result, *arguments) -> is it right
    stock: Callable[..., Any] | None = None  # the stock kernel by a way that releases the GIL, where there is one
    version: str = ""  # what else ranks must have in common
    name: str = ""  # what a person calls it
    keys: tuple[str, ...] = ("CPU", "CUDA")  # dispatch keys on which it may stand
    against_stock: bool = False  # check that a result is as near to the stock kernel's as rounding leaves it

    @property
    def identity(self) -> str:
        return f"{self.op} {self.fast.__module__}.{self.fast.__qualname__} {self.version} {self.keys}"


class Guard:
    """The override of one swap at one dispatch key."""

    def __init__(self, swap: Swap, key: str, mode: Mode = Mode()) -> None:  # noqa: B008 - immutable
        self.swap = swap
        self.key = key
        self.mode = mode
        self.on_gpu = key == "CUDA"
        kernel = torch.library.get_kernel(f"aten::{swap.op}", key)  # before the override is installed
        self.kernel = with_numbers(swap.op, kernel.call_boxed)
        returns = [str(one.type) for one in overload(swap.op)._schema.returns]
        self.outputs = len(returns) if set(returns) == {"Tensor"} else 0  # tensors; 0: something else is among them
        self.counters = Counters(Stopwatch(self.on_gpu), Stopwatch(self.on_gpu))
        self.flags: dict[tuple[int, int], Tensor] = {}  # (device, stream) -> failed checks, on the device
        self.failed_on_device = 0  # as last read
        self.furthest: dict[tuple[int, int], Tensor] = {}  # (device, stream) -> largest difference in shadow mode

    def __call__(self, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            reason = self.reason(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever the swap's own code raises, the program goes on
            return self.fall_back(type(error).__name__, keyset, args, kwargs, error=True)
        if reason:
            return self.fall_back(reason, keyset, args, kwargs)
        if self.mode.kind == "shadow":
            return self.both(keyset, args, kwargs)
        device, timed = device_of(args), not self.on_gpu or self.sampled(self.counters.hits)
        start = self.counters.own.start(device) if timed else None
        failed, result = "", None
        try:
            result = self.formed(self.swap.fast(*args, **kwargs))
        except NO_MEMORY:
            if replicas.several():  # one rank may be alone in this, unlike in other errors; stock would raise it too
                raise
            failed = OUT_OF_MEMORY
        except Exception as error:  # noqa: BLE001 - whatever a kernel raises, the program goes on
            failed = type(error).__name__
        if failed:  # out here, where no traceback holds the swap's scratch memory any more
            return self.fall_back(failed, keyset, args, kwargs, error=failed != OUT_OF_MEMORY)
        if timed:
            self.counters.own.stop(start, device)
        self.check(self.counters.hit(), result, keyset, args, kwargs)
        return result

    def formed(self, result: Any) -> Any:
        """The result, if it is as many tensors as the op's. Raises TypeError: the dispatcher would, in the program."""
        several = (result,) if self.outputs == 1 else result
        if self.outputs and (not isinstance(several, tuple | list) or len(several) != self.outputs):
            raise TypeError(f"aten::{self.swap.op} gives {self.outputs} tensors")
        for one in several if self.outputs else ():
            if not isinstance(one, Tensor) and (one is not None or self.outputs == 1):  # a gradient nobody asked for
                raise TypeError(f"aten::{self.swap.op} gives no {type(one).__name__}")
        return result

    def reason(self, *args: Any, **kwargs: Any) -> str:
        """Why the stock kernel serves this call: "" if it does not."""
        if self.opened():
            return "circuit open"
        if not replicas.agreed():
            return "ranks do not agree"
        declined = self.swap.decline(*args, **kwargs)
        if not declined and self.mode.kind == "canary" and not self.mode.serves(self.counters.call()):
            return "not in the canary's share"
        return declined

    def opened(self) -> bool:
        counters = self.counters
        failures = counters.errors + counters.failed + self.failed_on_device
        return failures >= FAILURES and not replicas.several()

    def fall_back(self, reason: str, keyset: Any, args: Any, kwargs: Any, error: bool = False) -> Any:
        self.counters.fall_back(reason, error)
        return self.stock(keyset, args, kwargs)

    def stock(self, keyset: Any, args: Any, kwargs: Any) -> Any:
        if self.swap.stock and args[0].numel() > SMALL:
            return self.swap.stock(*args, **kwargs)
        return self.kernel(keyset, *args, **kwargs)

    # --- shadow

    def both(self, keyset: Any, args: Any, kwargs: Any) -> Any:
        """The stock kernel's result, and what the swap's would have been beside it."""
        if self.capturing():
            return self.fall_back(GRAPH, keyset, args, kwargs)
        counters, device = self.counters, device_of(args)
        start = counters.stock.start(device)
        expected = self.stock(keyset, args, kwargs)
        counters.stock.stop(start, device)
        start = counters.own.start(device)
        try:
            result = self.swap.fast(*args, **kwargs)
        except NO_MEMORY:
            counters.fall_back(OUT_OF_MEMORY)
        except Exception as error:  # noqa: BLE001 - whatever a kernel raises, the program goes on
            counters.fall_back(type(error).__name__, error=True)
        else:
            counters.own.stop(start, device)
            self.check(counters.shadow(), result, keyset, args, kwargs)
            self.compare(result, expected)
        return expected

    def compare(self, result: Any, expected: Any) -> None:
        with torch.inference_mode(False), torch.no_grad(), contextlib.suppress(*NO_MEMORY):
            found = difference(result, expected)
            most = self.kept(self.furthest, found.device, found.dtype)
            with self.counters.lock:
                torch.maximum(most, found, out=most)

    # --- checks

    def check(self, nth: int, result: Any, keyset: Any, args: Any, kwargs: Any) -> None:
        """On a GPU the answer stays there, and nothing is checked while a graph is captured."""
        if not (self.swap.check or self.swap.against_stock) or not self.sampled(nth):
            return
        with torch.inference_mode(False), torch.no_grad():
            try:
                wrong = ~self.right(nth // self.mode.check_every, result, keyset, args, kwargs)
            except NO_MEMORY:  # which says nothing of the result
                return
            except Exception:  # noqa: BLE001 - results of another shape or kind
                wrong = torch.ones((), dtype=torch.bool, device=device_of(args))
            if self.on_gpu:
                self.kept(self.flags, wrong.device, torch.int64).add_(wrong)
        self.counters.check(not self.on_gpu and bool(wrong))

    def right(self, nth: int, result: Any, keyset: Any, args: Any, kwargs: Any) -> Tensor:
        if self.swap.check:
            return self.swap.check(nth, result, *args, **kwargs)
        return agrees(result, self.stock(keyset, args, kwargs))

    def sampled(self, nth: int) -> bool:
        """Whether a call is one of those that are checked, and on a GPU timed."""
        return nth % self.mode.check_every == 0 and not self.capturing()

    def capturing(self) -> bool:
        return self.on_gpu and torch.cuda.is_current_stream_capturing()

    def kept(self, where: dict[tuple[int, int], Tensor], device: torch.device, dtype: torch.dtype) -> Tensor:
        """The number that is kept for the current stream, or for the CPU; 0 at first."""
        stream = torch.cuda.current_stream(device) if self.on_gpu else None
        place = (device.index, stream.cuda_stream) if stream else (-1, 0)
        if place not in where:
            where[place] = elsewhere(lambda: zero(device, dtype, stream))
        return where[place]

    def report(self) -> Report:
        """Reads what was left on GPUs, which waits for them."""
        for device in {device for device, _ in (*self.flags, *self.furthest)} if self.on_gpu else ():
            torch.cuda.synchronize(device)  # a read waits for the current stream only
        # While a number is read, another thread may be the first one on its stream.
        self.failed_on_device = sum(int(flag) for flag in list(self.flags.values()))
        furthest = max((float(one) for one in list(self.furthest.values())), default=None)
        swap = self.swap
        return self.counters.report(swap.name, swap.op, self.key, self.opened(), self.failed_on_device, furthest)


def device_of(args: Any) -> torch.device:
    return next((arg.device for arg in args if isinstance(arg, Tensor)), torch.device("cpu"))


def zero(device: torch.device, dtype: torch.dtype, stream: torch.cuda.Stream | None) -> Tensor:
    with torch.cuda.stream(stream):  # None: none
        return torch.zeros((), dtype=dtype, device=device)
