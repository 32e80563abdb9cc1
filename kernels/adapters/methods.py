"""Methods of a package's class replaced in memory, and put back: only of the very source that an adapter knows."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from qrprof.kernels.adapters import Adapter, source_file
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.recording.script import after_import

Method = Callable[..., Any]
Wrap = Callable[[type, Method], Method]  # (class, its own method) -> what stands there instead
Undo = Callable[[], None]


def when_imported(adapter: Adapter, wraps: Mapping[str, Wrap]) -> Undo:
    """Replace the methods of the adapter's class that `wraps` names, at the end of its module's import.

    Raises QrprofError where the module is there already and is not as the adapter knows it. Where it comes later, that
    is one line on stderr: an import of the program's must not fail for it.
    """
    if adapter.target in sys.modules:
        return replace(adapter, wraps)
    undone: list[Undo] = []
    wanted = [True]

    def imported() -> None:
        try:
            undone.extend(replace(adapter, wraps) for _ in wanted)
        except QrprofError as error:
            print(f"qrprof: {error}", file=sys.stderr)

    def undo() -> None:
        wanted.clear()
        for one in undone:
            one()

    after_import(adapter.target, imported)
    return undo


def replace(adapter: Adapter, wraps: Mapping[str, Wrap]) -> Undo:
    """Raises QrprofError where the imported module is another file's, or something else has replaced a method."""
    module = sys.modules[adapter.target]
    file = source_file(adapter)
    if not same_file(module.__file__ or "", file):
        raise QrprofError(f"adapter {adapter.name} is off: {adapter.target} is not from {file}", Exit.REFUSED)
    of = getattr(module, adapter.optimizer)
    before = {name: bare(of, name) for name in wraps}
    for name, method in before.items():
        if foreign := next((one for one in origins(method) if not own(one, adapter)), None):
            raise QrprofError(
                f"adapter {adapter.name} is off: {adapter.optimizer}.{name} was replaced by {foreign}", Exit.REFUSED
            )
    after = {name: wrap(of, before[name]) for name, wrap in wraps.items()}
    for name, method in after.items():
        put(of, name, method)

    def undo() -> None:
        for name, method in after.items():
            if bare(of, name) is method:
                put(of, name, before[name])

    return undo


def same_file(one: str, other: Path) -> bool:
    """A module may come from no file, or from within an archive."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def origins(method: Method | None) -> Iterator[str]:
    """The modules of a function and of all that it is wrapped around."""
    while method is not None:
        yield method.__globals__["__name__"]
        method = getattr(method, "__wrapped__", None)


def own(module: str, adapter: Adapter) -> bool:
    return module == adapter.target or module.partition(".")[0] == "torch"


def hooked(of: Any, name: str) -> bool:
    """Whether torch has put around an optimizer's step what calls the hooks, as it does once an optimizer is made."""
    return bool(getattr(getattr(of, name), "hooked", False))


def bare(of: Any, name: str) -> Method:
    method = getattr(of, name)
    found: Method = method.__wrapped__ if hooked(of, name) else method
    return found


def put(of: Any, name: str, method: Method) -> None:
    """Within torch's hooks: whoever waits for the end of a step finds all of it done."""
    if hooked(of, name):
        method = of.profile_hook_step(method)
        method.hooked = True  # type: ignore[attr-defined]
    setattr(of, name, method)
