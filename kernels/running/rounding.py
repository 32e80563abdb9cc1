"""Stock ops whose inputs are moved by one rounding: what else a program may come to by rounding alone.

Each floating-point number x of an input becomes x (1 + d), with d drawn from -eps, 0, eps by generators of our own.
"""

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from qrprof.kernels.scalars import with_numbers
from qrprof.kernels.swappable import has_kernel
from qrprof.profiler.recording.stock import stock_call

_busy = threading.local()
_libraries: list[Any] = []  # an override lasts as long as its library


def install(ops: Sequence[str], seed: int) -> None:
    """Move the inputs of these ops of aten, named without the namespace, until the process ends."""
    generators: dict[torch.device, torch.Generator] = {}

    def moved(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(moved, value))
        if not isinstance(value, Tensor) or not (value.is_floating_point() or value.is_complex()):
            return value
        if value.device not in generators:
            generators[value.device] = torch.Generator(value.device).manual_seed(seed)
        return rounded(value, generators[value.device])

    keys = ("CPU", "CUDA") if torch.version.cuda else ("CPU",)
    _libraries.extend(override(op, key, moved) for op in ops for key in keys if has_kernel(op, key))


def rounded(x: Tensor, generator: torch.Generator) -> Tensor:
    if x.is_complex():
        return torch.view_as_complex(rounded(torch.view_as_real(x.resolve_conj()), generator))
    d = torch.randint(-1, 2, x.shape, generator=generator, device=x.device).to(x.dtype)
    return x * (1 + d * torch.finfo(x.dtype).eps)


def override(op: str, key: str, moved: Callable[[Any], Any]) -> Any:
    stock = with_numbers(op, stock_call(op, torch.library.get_kernel(f"aten::{op}", key)))

    def called(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        # What moves an input may call the op itself; what a graph captures would move it alike at each replay.
        if getattr(_busy, "now", False) or (key == "CUDA" and torch.cuda.is_current_stream_capturing()):
            return stock(keyset, *args, **kwargs)
        _busy.now = True
        try:
            with torch.no_grad():
                args, kwargs = tuple(map(moved, args)), {name: moved(value) for name, value in kwargs.items()}
        finally:
            _busy.now = False
        return stock(keyset, *args, **kwargs)

    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning only once")
        library.impl(op, called, key, with_keyset=True, allow_override=True)
    return library
