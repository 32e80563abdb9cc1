"""Where a step ends, found without touching the script: optimizer hooks, or a named range."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

from qrprof.profiler import units

Boundary = Callable[[str], None]  # called with the source, "optimizer SOAP"
Remove = Callable[[], None]
Stepped = dict[int, tuple[str, int]]  # by id, the first one first: an optimizer's class and how often it stepped
EVEN = 0.05  # of the first one's steps: another that differs by less steps as often, but for a skipped step


def watch_optimizers(boundary: Boundary, stepped: Stepped | None = None) -> Remove:
    """Call `boundary` after each step of the first optimizer that steps (of the next, once it is gone).

    `stepped` counts the steps of all of them, anew with each first one.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    first: list[weakref.ref[Any]] = []
    counts = {} if stepped is None else stepped

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not first or first[0]() is None:
            first[:] = [weakref.ref(optimizer)]
            counts.clear()
        name, count = counts.get(id(optimizer), (type(optimizer).__name__, 0))
        counts[id(optimizer)] = name, count + 1
        if first[0]() is optimizer:
            boundary(f"optimizer {name}")

    return register_optimizer_step_post_hook(after_step).remove


def uneven(stepped: Stepped) -> list[str]:
    """What to know of a step where another optimizer does not step as often as the first one."""
    counts = list(stepped.values())
    steps = counts[0][1] if counts else 0
    for name, count in counts[1:]:
        if abs(count - steps) > max(1, EVEN * steps):  # one: the first one may be a step ahead
            seen = f"another optimizer ({name}) stepped {units.calls(count / steps)} times a step"
            return [f"{seen}; a step here is the first one's; give --range NAME for other steps"]
    return []


def watch_nvtx(name: str, boundary: Boundary) -> Remove:
    """Call `boundary` whenever a range called `name` begins by the package nvtx.

    To be called before the script runs: it may import functions of nvtx before it imports torch.
    """
    import nvtx

    entered = entry(name, boundary)
    return all_of(
        wrap(nvtx, "push_range", lambda message=None, *_, **__: entered(message)),
        wrap(nvtx, "start_range", lambda message=None, *_, **__: entered(message)),
        wrap(nvtx.annotate, "__enter__", lambda self, *_: entered(message_of(self))),
        wrap_decorator(nvtx.annotate, entered),
    )


def watch_range(name: str, boundary: Boundary) -> Remove:
    """Call `boundary` whenever a range called `name` begins: record_function, or NVTX by torch."""
    import torch

    entered = entry(name, boundary)
    return all_of(
        wrap(torch.autograd.profiler.record_function, "__enter__", lambda self, *_: entered(self.name)),
        wrap(torch.cuda.nvtx, "range_push", lambda msg, *_: entered(msg)),
        wrap(torch.cuda.nvtx, "range_start", lambda msg, *_: entered(msg)),
    )


def message_of(annotation: Any) -> Any:
    """None where nvtx is switched off (NVTX_DISABLE) and keeps no message."""
    return getattr(annotation, "init_args", (None,))[0]


def entry(name: str, boundary: Boundary) -> Callable[[Any], None]:
    def entered(label: Any) -> None:
        if label == name:
            boundary(f"range {name}")

    return entered


def all_of(*removers: Remove) -> Remove:
    def remove() -> None:
        for remover in removers:
            remover()

    return remove


def wrap(owner: Any, name: str, before: Callable[..., None]) -> Remove:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        before(*args, **kwargs)
        return original(*args, **kwargs)

    setattr(owner, name, wrapped)
    return lambda: setattr(owner, name, original)


def wrap_decorator(annotate: Any, entered: Callable[[Any], None]) -> Remove:
    original = annotate.__call__

    def decorate(self: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        decorated = original(self, function)
        message = message_of(self) or function.__name__

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            entered(message)
            return decorated(*args, **kwargs)

        return called

    annotate.__call__ = decorate
    return lambda: setattr(annotate, "__call__", original)
