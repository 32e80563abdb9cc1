"""How much a candidate may take, and what its processes have taken so far."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from qrprof.planner.gate.records import Detector

SPARE = 0.02  # of the machine's memory: a candidate that leaves no more is ended whatever its limit
SCRATCH_BYTES = 2 << 30


@dataclass(frozen=True)
class Limits:
    wall_s: float = 30.0  # one request
    build_s: float = 120.0  # the first import of the candidate, compiling included
    memory_bytes: int = 8 << 30  # beyond what its process holds when it is ready to import the candidate
    tasks: int = 512  # threads of all its processes, likewise


@dataclass(frozen=True)
class Usage:
    """What the processes below one hold together."""

    pids: frozenset[int] = frozenset()
    resident_bytes: int = 0
    tasks: int = 0


def usage(root: psutil.Process) -> Usage:
    pids, resident, tasks = set(), 0, 0
    for process in below(root):
        with contextlib.suppress(psutil.Error), process.oneshot():
            resident += process.memory_info().rss
            tasks += process.num_threads()
            pids.add(process.pid)
    return Usage(frozenset(pids), resident, tasks)


def below(root: psutil.Process) -> list[psutil.Process]:
    try:
        return root.children(recursive=True)
    except psutil.Error:
        return []


def exceeded(now: Usage, before: Usage, limits: Limits) -> tuple[Detector, str] | None:
    """The detector and a sentence, where more is used than `limits` allow beyond `before`."""
    tasks, memory = now.tasks - before.tasks, now.resident_bytes - before.resident_bytes
    if tasks > limits.tasks:
        return "task-limit", f"it started {tasks} threads and processes; {limits.tasks} are allowed"
    if memory > limits.memory_bytes:
        return "memory-limit", f"it took {memory >> 20} MiB; {limits.memory_bytes >> 20} MiB are allowed"
    machine = psutil.virtual_memory()
    if memory > 0 and machine.available < SPARE * machine.total:
        return "memory-limit", f"it left {machine.available >> 20} MiB of the machine's memory"
    return None


def scratch_full(folder: Path) -> tuple[Detector, str] | None:
    """As `exceeded`, for the files of a folder."""
    taken = sum(size_of(Path(parent, name)) for parent, _, names in os.walk(folder) for name in names)
    if taken <= SCRATCH_BYTES:
        return None
    return "disk-full", f"it wrote {taken >> 20} MiB of files; {SCRATCH_BYTES >> 20} MiB are allowed"


def size_of(file: Path) -> int:
    try:
        return file.lstat().st_blocks * 512
    except OSError:
        return 0
