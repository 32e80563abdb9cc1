"""Putting faster kernels under a running program, through torch's dispatcher and below autograd.

Whatever calls the op then calls them: autograd, vmap, compiled and scripted functions, other threads, torch's own code.
Nothing else costs anything, and a call of the op a few us. There is one library per op and dispatch key, as destroying
a library is the only way to take an override off.
"""

import atexit
import hashlib
import os
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from qrprof import __version__
from qrprof.kernels import adapters, replicas
from qrprof.kernels.adapters import Attached
from qrprof.kernels.counters import Report
from qrprof.kernels.guard import Guard, Swap
from qrprof.kernels.loading import Loaded, load, placed
from qrprof.kernels.modes import Mode
from qrprof.kernels.qr import cpu
from qrprof.kernels.qr.dispatch import RULES
from qrprof.kernels.qr.swaps import SWAPS
from qrprof.kernels.swapfile import Entry
from qrprof.kernels.swappable import Refusal, swappable
from qrprof.profiler.errors import QrprofError


class SwapError(RuntimeError):
    """Swaps cannot be installed as asked for."""


@dataclass(frozen=True)
class Installed:
    loaded: Loaded
    mode: Mode
    guards: tuple[Guard, ...]
    adapters: dict[str, Attached]
    undo: ExitStack  # takes all of it off


_lock = threading.Lock()
_installed: Installed | None = None
_held = False
STANDARD = Mode()


def install(swaps: Sequence[Swap] | str | os.PathLike[str] | None = None, mode: Mode = STANDARD) -> None:
    """Swap these ops, those of QR by default, on the CPU and on CUDA; $QRPROF_SWAPS=off leaves them stock.

    A path is that of a swaps.json: of what it lists, that is swapped which this user accepted and which fits here; one
    line on stderr for each other says why it is stock. With torch.distributed every rank calls this, and all swap the
    same thing or nothing. Raises SwapError where swaps are installed already, an op cannot be swapped, or one is named
    twice.
    """
    global _installed
    if _held:
        print("qrprof: the command decides what is swapped: install() in the program does nothing", file=sys.stderr)
        return
    if _installed is not None and not (_installed.guards or _installed.adapters):
        uninstall()  # nothing, but for a process group
    with _lock:
        if _installed is not None:
            raise SwapError("swaps are installed already; uninstall() them first")
        found = asked(swaps)
        places = [(swap, key) for swap in found.swaps for key in keys_of(swap)]
        if len({(swap.op, key) for swap, key in places}) < len(places):
            raise SwapError("an op is swapped twice")
        with ExitStack() as undo:  # all of it or nothing
            attached, refused = attach(found.adapters, mode, undo)
            guards = tuple(Guard(swap, key, mode) for swap, key in places)
            undo.callback(replicas.when_group_starts(compare))
            for guard in guards:
                undo.callback(put(guard)._destroy)
            here = tuple(entry for entry in found.adapters if entry.name in attached)
            found = replace(found, adapters=here, refused=(*found.refused, *refused))
            _installed = Installed(found, mode, guards, attached, undo.pop_all())
        atexit.register(say_failures)
    for sentence in found.refused:
        print(f"qrprof: {sentence}", file=sys.stderr)
    compare()


def hold() -> None:
    """From here on `install` does nothing in this process: what runs the program has decided what is swapped."""
    global _held
    _held = True


def asked(swaps: Sequence[Swap] | str | os.PathLike[str] | None) -> Loaded:
    if os.environ.get("QRPROF_SWAPS") == "off":
        return Loaded()
    if isinstance(swaps, str | os.PathLike):
        return load(Path(swaps))
    return Loaded(tuple(SWAPS if swaps is None else swaps))


def attach(entries: Sequence[Entry], mode: Mode, undo: ExitStack) -> tuple[dict[str, Attached], list[str]]:
    """Adapters at work, by name, and why others are not; `undo` takes them off."""
    found: dict[str, Attached] = {}
    refused = []
    for entry in entries:
        try:
            found[entry.name] = adapters.install(entry.name, mode, partial(placed, entry=entry))
            undo.callback(found[entry.name])
        except QrprofError as error:
            refused.append(str(error))
    return found, refused


def compare() -> None:
    """With the other ranks; they stay stock if anything differs."""
    if _installed is None or not replicas.several():
        return
    why = replicas.objection(fingerprint(_installed))
    if not why:
        return
    for adapter in _installed.adapters.values():
        adapter()
    if torch.distributed.get_rank() == 0:
        print(f"qrprof: {why}: all run stock", file=sys.stderr)


def uninstall() -> None:
    """Stock again, at once; nothing where nothing is installed. What functions returned stays valid."""
    global _installed
    with _lock:
        if _installed is None:
            return
        undo, _installed = _installed.undo, None
        undo.close()
        atexit.unregister(say_failures)


def report() -> list[Report]:
    """What each swap has done since it was installed, those of adapters last; waits for GPUs that hold results."""
    if _installed is None:
        return []
    adapted = [(name, guard) for name, adapter in _installed.adapters.items() for guard in adapter.guards]
    own = [guard.report() for guard in _installed.guards]
    return [*own, *(replace(guard.report(), name=name) for name, guard in adapted)]


def hits() -> int:
    """Calls that swaps and adapters have served since they were installed; waits for nothing, as `report` does."""
    if _installed is None:
        return 0
    adapted = [guard for adapter in _installed.adapters.values() for guard in adapter.guards]
    return sum(guard.counters.hits for guard in (*_installed.guards, *adapted))


def loaded() -> Loaded:
    """What is installed, and what was refused."""
    return _installed.loaded if _installed else Loaded()


def keys_of(swap: Swap) -> list[str]:
    """The dispatch keys of this build of torch on which the op has a kernel."""
    found = swappable(swap.op)
    if isinstance(found, Refusal):
        raise SwapError(found.why)
    if found.op != swap.op:
        raise SwapError(f"aten::{swap.op} is composed of other ops; swap aten::{found.op}")
    return [key for key in found.keys if key in swap.keys and (key == "CPU" or torch.version.cuda)]


def put(guard: Guard) -> Any:
    """A library that holds the override; it lasts as long as the library."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning only once")
        # The recorder of `qrprof trace` may be there already; the last one installed is called.
        library.impl(guard.swap.op, guard.__call__, guard.key, with_keyset=True, allow_override=True)
    return library


def fingerprint(installed: Installed) -> str:
    """A hash of what makes the bits of a result: swaps, the dispatch table, versions and the device."""
    names = [swap.identity for swap in installed.loaded.swaps] + sorted(installed.adapters)
    if not names:
        return "stock"
    processor = (torch.backends.cpu.get_cpu_capability(), cpu.available())
    parts = [__version__, torch.__version__, installed.mode, *names, *map(repr, RULES), *processor]
    if torch.version.cuda and torch.cuda.is_available():
        import triton

        parts += [triton.__version__, torch.cuda.get_device_name()]
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


def say_failures() -> None:
    """At exit, on stderr: swaps whose results or calls failed."""
    try:
        reports = report()
    except RuntimeError:  # a GPU that has failed: the program says so itself
        return
    for swap in reports:
        if swap.failed or swap.errors:
            since = "; stock served every later call" if swap.open else ""
            print(
                f"qrprof: swap of {swap.op} on {swap.key}: {swap.failed} of {swap.checked} checked results wrong,"
                f" {swap.errors} calls raised{since}",
                file=sys.stderr,
            )
