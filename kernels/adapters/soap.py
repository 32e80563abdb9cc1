"""SOAP of pytorch_optimizer: the bases of all parameters refreshed by one QR for each shape.

Its step refreshes the bases of one parameter after the other, and what it has computed is first read in the next step.
So the package's own method runs as it is, but for its QR: that is put off to the end of the step, when the new bases
take the places of the old ones. A refresh while a parameter's state is made is not put off: the same step reads it.
"""

import functools
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final

import torch
from torch import Tensor

from qrprof.kernels.adapters import Adapter, Attached, Placing
from qrprof.kernels.adapters.methods import Method, when_imported
from qrprof.kernels.guard import Guard, Swap
from qrprof.kernels.modes import Mode
from qrprof.kernels.qr import postcheck, stock, swaps

KEYS: Final = {"cpu": torch._C.DispatchKey.CPU, "cuda": torch._C.DispatchKey.CUDA}
# Of a device's memory, for what waits; factoring it takes four times as much again. Not of what is free: ranks would
# make different batches, whose bits differ.
MOST: Final = 1 / 64
MOST_ON_CPU: Final = 1 << 28  # bytes

Bases = list[Tensor]
Place = tuple[Bases, int]


def one_by_one(A: Tensor) -> tuple[Tensor, Tensor]:
    """The stock kernel on each of [batch, n, n], as the package calls it; column-major, as its results are."""
    Q, R = ([factor.mT for factor in factors] for factors in zip(*map(stock.qr, A), strict=True))
    return torch.stack(Q).mT, torch.stack(R).mT


QR: Final = Swap("linalg_qr", swaps.qr, swaps.decline_qr, postcheck.qr, one_by_one, name="soap")


def attach(adapter: Adapter, mode: Mode, placing: Placing) -> Attached:
    """Group the refreshes of every SOAP, from the import of its module on."""
    swap = placing(QR)
    guards = {key.lower(): Guard(swap, key, mode) for key in swap.keys if key == "CPU" or torch.version.cuda}

    def step(of: type, own: Method) -> Method:
        @functools.wraps(own)
        def grouped(self: Any, *args: Any, **kwargs: Any) -> Any:
            if type(self) is not of or torch.compiler.is_compiling():
                return own(self, *args, **kwargs)
            waiting = Waiting(guards)
            try:
                return during(waiting, lambda: own(self, *args, **kwargs))
            finally:
                waiting.factor()

        return grouped

    wraps = {"step": step, "init_group": init_group, "get_orthogonal_matrix_qr": get_orthogonal_matrix_qr}
    return Attached(tuple(guards.values()), when_imported(adapter, wraps))


def init_group(of: type, own: Method) -> Method:
    @functools.wraps(own)
    def at_once(*args: Any, **kwargs: Any) -> Any:
        return during(None, lambda: own(*args, **kwargs))

    return at_once


def get_orthogonal_matrix_qr(of: type, own: Method) -> Method:
    @functools.wraps(own)
    def put_off(self: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        waiting = _waiting.get()
        places = [i for i, gram in enumerate(state["GG"]) if len(gram)]
        if waiting is None or not all(waiting.takes(state["GG"][i]) for i in places):
            return own(self, state, *args, **kwargs)
        noting = Noting(state["Q"][i] for i in places)
        names = own.__globals__ | {"torch": noting}
        bases = types.FunctionType(own.__code__, names, own.__name__, own.__defaults__)(self, state, *args, **kwargs)
        for i, matrix in zip(places, noting.matrices, strict=True):
            waiting.add(matrix, (bases, i))
        return bases

    return put_off


class Noting:
    """Stands in for `torch` in the package's method: linalg.qr notes its matrix and returns the next of `stand_ins`.

    A TorchFunctionMode would cost each other call of that method some us.
    """

    def __init__(self, stand_ins: Iterator[Tensor]) -> None:
        self.stand_ins = stand_ins
        self.matrices: list[Tensor] = []
        self.linalg = self

    def qr(self, matrix: Tensor) -> tuple[Tensor, None]:
        self.matrices.append(matrix)
        return next(self.stand_ins), None

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


class Waiting:
    """Matrices of the step under way whose QR was put off, and the places that wait for their Q."""

    def __init__(self, guards: Mapping[str, Guard]) -> None:
        self.guards = guards
        self.groups: dict[Any, tuple[list[Tensor], list[Place]]] = defaultdict(lambda: ([], []))
        self.bytes = 0

    def takes(self, matrix: Tensor) -> bool:
        return type(matrix) is Tensor and matrix.device.type in self.guards

    def add(self, matrix: Tensor, place: Place) -> None:
        matrices, places = self.groups[matrix.shape, matrix.dtype, matrix.device]
        matrices.append(matrix)
        places.append(place)
        self.bytes += matrix.nbytes
        if self.bytes >= most(matrix.device):
            self.factor()

    @torch.no_grad()
    def factor(self) -> None:
        """Everything that waits, a shape at a time."""
        self.bytes = 0
        while self.groups:
            (_, _, device), (matrices, places) = self.groups.popitem()
            for (bases, i), q in zip(places, factored(matrices, self.guards[device.type]), strict=True):
                bases[i] = q.to(bases[i].dtype)


_waiting: ContextVar[Waiting | None] = ContextVar("qrprof_soap", default=None)


def during(waiting: Waiting | None, work: Callable[[], Any]) -> Any:
    before = _waiting.set(waiting)
    try:
        return work()
    finally:
        _waiting.reset(before)


@functools.lru_cache
def most(device: torch.device) -> float:
    """Bytes that may wait."""
    return MOST * torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else MOST_ON_CPU


def factored(matrices: list[Tensor], guard: Guard) -> Iterator[Tensor]:
    """Q of each, in memory of its own; `matrices` is emptied. One alone is factored as the package does."""
    if len(matrices) == 1:
        yield torch.linalg.qr(matrices.pop()).Q
        return
    stack = torch.stack(matrices)
    matrices.clear()
    # No op of the dispatcher makes this call: a profile is to show the one that it stands for.
    with torch._C._profiler._RecordFunctionFast(f"aten::{QR.op}", [stack]):
        Q = guard(torch._C.DispatchKeySet(KEYS[stack.device.type]), stack)[0]
    del stack
    yield from (q.clone() for q in Q)
