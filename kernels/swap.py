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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from qrprof import __version__
from qrprof.kernels import replicas
from qrprof.kernels.counters import Report
from qrprof.kernels.guard import Guard, Swap
from qrprof.kernels.qr import cpu
from qrprof.kernels.qr.dispatch import RULES
from qrprof.kernels.qr.swaps import SWAPS
from qrprof.kernels.swappable import Refusal, swappable


class SwapError(RuntimeError):
    """Swaps cannot be installed as asked for."""


@dataclass(frozen=True)
class Installed:
    guards: tuple[Guard, ...]
    libraries: tuple[Any, ...]
    undo: Callable[[], None]  # no longer wait for a process group


_lock = threading.Lock()
_installed: Installed | None = None


def install(swaps: Sequence[Swap] | None = None) -> None:
    """Swap these ops, those of QR by default, on the CPU and on CUDA; $QRPROF_SWAPS=off leaves them stock.

    With torch.distributed every rank calls this, and all swap the same thing or nothing. Raises SwapError where swaps
    are installed already, an op cannot be swapped, or one is named twice.
    """
    global _installed
    chosen = () if os.environ.get("QRPROF_SWAPS") == "off" else tuple(SWAPS if swaps is None else swaps)
    with _lock:
        if _installed is not None:
            raise SwapError("swaps are installed already; uninstall() them first")
        places = [(swap, key) for swap in chosen for key in keys_of(swap)]
        if len({(swap.op, key) for swap, key in places}) < len(places):
            raise SwapError("an op is swapped twice")
        guards = tuple(Guard(swap, key) for swap, key in places)
        undo = replicas.when_group_starts(lambda: compare(chosen))
        _installed = Installed(guards, tuple(map(put, guards)), undo)
        atexit.register(say_failures)
    compare(chosen)


def compare(swaps: Sequence[Swap]) -> None:
    """With the other ranks; they stay stock if anything differs."""
    if replicas.several() and not replicas.agree(fingerprint(swaps)) and torch.distributed.get_rank() == 0:
        print("qrprof: swaps, versions or devices of the ranks differ: all run stock", file=sys.stderr)


def uninstall() -> None:
    """Stock again, at once; nothing where nothing is installed. What functions returned stays valid."""
    global _installed
    with _lock:
        if _installed is None:
            return
        for library in _installed.libraries:
            library._destroy()
        _installed.undo()
        _installed = None
        atexit.unregister(say_failures)


def report() -> list[Report]:
    """What each swap has done since it was installed; waits for GPUs that hold results of checks."""
    return [guard.report() for guard in _installed.guards] if _installed else []


def keys_of(swap: Swap) -> list[str]:
    """The dispatch keys of this build of torch on which the op has a kernel."""
    found = swappable(swap.op)
    if isinstance(found, Refusal):
        raise SwapError(found.why)
    if found.op != swap.op:
        raise SwapError(f"aten::{swap.op} is composed of other ops; swap aten::{found.op}")
    return [key for key in found.keys if key == "CPU" or torch.version.cuda]


def put(guard: Guard) -> Any:
    """A library that holds the override; it lasts as long as the library."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning only once")
        # The recorder of `qrprof trace` may be there already; the last one installed is called.
        library.impl(guard.swap.op, guard.__call__, guard.key, with_keyset=True, allow_override=True)
    return library


def fingerprint(swaps: Sequence[Swap]) -> str:
    """A hash of what makes the bits of a result: swaps, the dispatch table, versions and the device."""
    processor = (torch.backends.cpu.get_cpu_capability(), cpu.available())
    parts = [__version__, torch.__version__, *(swap.identity for swap in swaps), *map(repr, RULES), *processor]
    if torch.version.cuda and torch.cuda.is_available():
        import triton

        parts += [triton.__version__, torch.cuda.get_device_name()]
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


def say_failures() -> None:
    """At exit, on stderr: swaps whose results or calls failed."""
    for guard in _installed.guards if _installed else ():
        swap = guard.report()
        if swap.failed or swap.errors:
            since = "; stock served every later call" if swap.open else ""
            print(
                f"qrprof: swap of {swap.op} on {swap.key}: {swap.failed} of {swap.checked} checked results wrong,"
                f" {swap.errors} calls raised{since}",
                file=sys.stderr,
            )
