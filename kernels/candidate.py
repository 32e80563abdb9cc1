"""A candidate's file as a swap: its module, the calls it was judged on, and its arguments as the gate gave them."""

import functools
import linecache
import sys
import threading
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from qrprof.kernels.guard import Swap
from qrprof.kernels.swapfile import SHA, Case, Entry
from qrprof.kernels.swappable import Refusal, overload, swappable

OUTSIDE: Final = "outside the calls it was judged on"
SEVERAL: Final = "its inputs are on several devices"
BY_ITSELF: Final = "called by the candidate itself"
KNOWN: Final = 4096  # kinds of calls whose answer is remembered
Form = tuple[Any, ...]  # of one argument: of a tensor (shape, dtype, contiguous), of a plain value (its type, value)


class Unusable(Exception):
    """Why a file cannot be used, as a sentence's end."""


def swap_of(entry: Entry, source: bytes, file: Path) -> Swap:
    """The candidate as it was judged: without autocast, on the device of its inputs, and with the stock op inside.

    Raises Unusable where the op cannot be swapped, and where the file does not run.
    """
    found = swappable(entry.op)
    if isinstance(found, Refusal):
        raise Unusable(found.why.removesuffix("."))
    if found.op != entry.op:
        raise Unusable(f"aten::{entry.op} is composed of other ops")
    schema = overload(entry.op)._schema
    arguments = functools.partial(in_order, schema.arguments)
    candidate, single = executed(source, file, entry.sha256), len(schema.returns) == 1
    inside = threading.local()

    def fast(*args: Any, **kwargs: Any) -> Any:
        values = arguments(args, kwargs)
        inside.busy = True
        try:
            with torch._C._DisableAutocast(), on_device(values):
                result = candidate(*values)
        finally:
            inside.busy = False
        if isinstance(result, Tensor):
            return result if single else (result,)
        return result[0] if single else tuple(result)

    @functools.lru_cache(KNOWN)
    def served(forms: tuple[Form, ...]) -> bool:
        return any(fits(case, forms) for case in entry.cases)

    def decline(*args: Any, **kwargs: Any) -> str:
        if getattr(inside, "busy", False):
            return BY_ITSELF
        values = arguments(args, kwargs)
        if len({value.device for value in values if isinstance(value, Tensor)}) > 1:
            return SEVERAL
        return "" if served(tuple(map(form, values))) else OUTSIDE

    return Swap(entry.op, fast, decline, version=entry.digest, against_stock=True)


def on_device(values: Sequence[Any]) -> AbstractContextManager[Any]:
    """Launches of Triton and of CUDA C++ go to the current GPU, which need not be that of the inputs."""
    device = next((value.device for value in values if isinstance(value, Tensor)), None)
    if device is None or device.type != "cuda" or device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(device)


def executed(source: bytes, file: Path, sha256: str) -> Callable[..., Any]:
    """`candidate` of these bytes, whatever the file holds by now: Triton reads sources by way of linecache."""
    module = types.ModuleType(f"qrprof_candidate_{sha256[:SHA]}")
    module.__file__ = str(file)
    try:
        text = source.decode()
        linecache.cache[str(file)] = (len(text), None, text.splitlines(keepends=True), str(file))
        sys.modules[module.__name__] = module
        exec(compile(source, str(file), "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - it was accepted
        candidate: Callable[..., Any] = module.candidate
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever its code raises
        reason = str(error).partition("\n")[0]
        raise Unusable(f"{file} cannot be loaded: {type(error).__name__}{reason and ': '}{reason}") from None
    return candidate


def in_order(arguments: Sequence[Any], args: Any, kwargs: Any) -> list[Any]:
    """All arguments of the schema, as a candidate takes them: positional, dtypes by name, lists as tuples."""
    left = (kwargs.get(argument.name, argument.default_value) for argument in arguments[len(args) :])
    return [as_given(value) for value in (*args, *left)]


def as_given(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    return tuple(value) if isinstance(value, list) else value


def form(value: Any) -> Form:
    if isinstance(value, Tensor):
        return (tuple(value.shape), str(value.dtype).removeprefix("torch."), value.is_contiguous())
    return (type(value), value)  # 1, 1.0 and True are equal


def fits(case: Case, forms: Sequence[Form]) -> bool:
    layout = case.layout or "t" * len(case.shapes) + "p" * len(case.plain)
    tensors = [one for one in forms if len(one) == 3]
    plain = [one for one in forms if len(one) == 2]
    return (
        [len(one) == 3 for one in forms] == [kind == "t" for kind in layout]
        and plain == [(type(value), value) for value in case.plain]
        and all(map(within, tensors, case.shapes, case.dtypes))
        and one_size_each(tensors, case)
        and (case.strided or all(contiguous for _, _, contiguous in tensors))
    )


def one_size_each(tensors: Sequence[Form], case: Case) -> bool:
    """Whether each dimension that may vary is as long in all tensors: else it is broadcast, or an error of the op's."""
    found: dict[int, int] = {}
    return all(
        found.setdefault(at, size) == size
        for (sizes, *_), shape in zip(tensors, case.shapes, strict=False)
        for at, (size, (low, high)) in enumerate(zip(sizes, shape, strict=True))
        if low < high
    )


def within(tensor: Form, shape: Sequence[tuple[int, int]], dtype: str) -> bool:
    sizes, found, _ = tensor
    return (
        found == dtype
        and len(sizes) == len(shape)
        and all(low <= size <= high for size, (low, high) in zip(sizes, shape, strict=True))
    )
