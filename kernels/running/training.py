"""A program watched for a verification: what `install` is told to do, from the import of torch on.

Everything is counted in steps: the ends of the steps of all optimizers, in the order in which they come. Once it has
seen enough, the process ends, and the program with it.
"""

import atexit
import contextlib
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qrprof.kernels.running import watched
from qrprof.kernels.running.watched import Machine, Served, Swaps
from qrprof.profiler.recording.clock import uses_device
from qrprof.profiler.recording.recorder import leave

SEED = 0  # a program that sets none repeats itself all the same
KIB = 1024


def install(settings: dict[str, Any]) -> None:
    """`settings`: kind ("train" or "time"), file (of the record), and what that kind takes."""
    guarded(Path(settings["file"]), lambda: watch(settings))


def watch(settings: dict[str, Any]) -> None:
    from qrprof.kernels.running import following, pace, rounding

    seed()
    if moved := settings.get("rounding"):
        rounding.install(moved["ops"], moved["seed"])
    kind = {"train": following.install, "time": pace.install}[settings["kind"]]
    kind(settings)


def seed() -> None:
    import random

    import torch

    random.seed(SEED)
    torch.manual_seed(SEED)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(SEED)


def ending(file: Path, record: Callable[[], watched.Trained | watched.Timed]) -> Callable[[], None]:
    """What writes the record and ends the process; at the script's own end it is written too, once."""
    pid, written = os.getpid(), list[bool]()

    def write() -> None:
        if os.getpid() == pid and not written:
            written.append(True)
            watched.write(file, record())

    def end() -> None:
        write()
        leave(0)

    atexit.register(write)
    return end


def guarded(file: Path, work: Callable[[], None]) -> None:
    """Do work of ours within a step. Where it fails, the process ends, and says why in a file beside the record's.

    A failure of the device is the program's: kernels run late, and we wait for them before it does.
    """
    import torch

    try:
        work()
    except torch.AcceleratorError:
        raise
    except Exception as error:  # noqa: BLE001 - the border between the script and us
        file.with_suffix(".error").write_text(f"{type(error).__name__}: {error}".partition("\n")[0], encoding="utf-8")
        leave(1)


def hits() -> int:
    """Calls that swaps have served so far. Between two steps nothing may wait for the device."""
    from qrprof.kernels import swap

    return swap.hits()


def swaps() -> Swaps:
    """What became of this process's swaps."""
    from qrprof.kernels import swap

    loaded = swap.loaded()
    served = [
        Served(one.op, one.key, one.hits, one.fallbacks, one.checked, one.failed, one.errors, one.name)
        for one in swap.report()
    ]
    return Swaps(tuple(served), tuple(entry.name for entry in loaded.adapters), loaded.refused)


def held() -> int:
    """Bytes of memory in use: of the GPU where the program uses one, else of the process.

    On a GPU those that were asked for: blocks are up to 1 MiB larger, as chance has it, and a step may get others.
    """
    import torch

    if uses_device():
        return int(torch.cuda.memory_stats().get("requested_bytes.all.current") or torch.cuda.memory_allocated())
    import psutil

    return int(psutil.Process().memory_info().rss)


def peak() -> int:
    """The most bytes in use so far, counted as in `held`."""
    import torch

    if uses_device():
        return int(torch.cuda.max_memory_allocated())
    return most_resident()


def most_resident() -> int:
    """Bytes of this process alone: on Linux, what `getrusage` says includes the process that it was started from."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * KIB for line in lines if line.startswith("VmHWM:"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else KIB)


def machine() -> Machine:
    import torch

    from qrprof.profiler.devices import cpu_name
    from qrprof.profiler.recording.runrecord import versions

    if uses_device():
        gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
        return Machine(gpu.name, str(getattr(gpu, "uuid", "")), gpu.total_memory, versions())
    import psutil

    return Machine(cpu_name(), "", int(psutil.virtual_memory().total), versions())
