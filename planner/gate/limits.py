"""What a candidate may take, and what its processes have taken so far."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from qrprof.planner.gate.records import Detector

MOST_FILES = 50_000
BLOCK = 512  # bytes, of st_blocks
SPARE = 0.02  # of the machine's memory: a candidate that leaves no more is ended whatever its limit


@dataclass(frozen=True)
class Limits:
    """What the process of a candidate may take, and reach."""

    wall_s: float = 30.0  # one request
    build_s: float = 120.0  # the import of the candidate, and likewise its first call: both may compile
    memory_bytes: int = 8 << 30  # beyond what its process holds when it is ready to import the candidate
    tasks: int = 512  # threads of all its processes, likewise
    disk_bytes: int = 2 << 30  # of its files
    included: bool = False  # it may call the included kernels: a file of ours, not someone's candidate


@dataclass(frozen=True)
class Usage:
    """What the processes below one hold together."""

    pids: frozenset[int]  # of those that still run
    resident_bytes: int
    shared_bytes: int  # of the whole machine: who holds a block of shared memory open need not have it mapped
    tasks: int


def usage(root: psutil.Process) -> Usage:
    pids, resident, tasks = set(), 0, 0
    for process in below(root):
        with contextlib.suppress(psutil.Error), process.oneshot():
            resident += process.memory_info().rss
            tasks += process.num_threads()
            if process.status() != psutil.STATUS_ZOMBIE:
                pids.add(process.pid)
    return Usage(frozenset(pids), resident, psutil.virtual_memory().shared, tasks)


def below(root: psutil.Process) -> list[psutil.Process]:
    try:
        return root.children(recursive=True)
    except psutil.Error:
        return []


def exceeded(root: psutil.Process, before: Usage, limits: Limits) -> tuple[Detector, str] | None:
    """The detector and a sentence, where the processes below `root` take more than `limits` allow beyond `before`."""
    now = usage(root)
    tasks, most = now.tasks - before.tasks, limits.memory_bytes
    if tasks > limits.tasks:
        return "task-limit", f"it started {tasks} threads and processes; {limits.tasks} are allowed"
    memory = now.resident_bytes - before.resident_bytes
    if memory > most:  # what forks have in common counts once
        memory = proportional_bytes(root) - before.resident_bytes
    if max(memory, shared := now.shared_bytes - before.shared_bytes) > most:
        return "memory-limit", f"it took {max(memory, shared) >> 20} MiB; {most >> 20} MiB are allowed"
    machine = psutil.virtual_memory()
    if memory > 0 and machine.available < SPARE * machine.total:
        return "memory-limit", f"it left {machine.available >> 20} MiB of the machine's memory"
    return None


def proportional_bytes(root: psutil.Process) -> int:
    """Of the processes below one: a page that n of them share counts as an n-th for each."""
    total = 0
    for process in below(root):
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total


def disk_exceeded(folder: Path, output: IO[bytes], limits: Limits) -> tuple[Detector, str] | None:
    """As `exceeded`, for the files of a folder and one more."""
    files, taken = files_in(folder)
    taken += os.fstat(output.fileno()).st_blocks * BLOCK
    if files > MOST_FILES:
        return "disk-full", f"it made more than {MOST_FILES} files"
    if taken > limits.disk_bytes:
        return "disk-full", f"it wrote {taken >> 20} MiB of files; {limits.disk_bytes >> 20} MiB are allowed"
    return None


def files_in(folder: Path) -> tuple[int, int]:
    """How many files and folders there are below a folder, and their bytes. What cannot be looked at does not count."""
    files, taken, folders = 0, 0, [str(folder)]
    while folders and files <= MOST_FILES:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                files += 1
                taken += entry.stat(follow_symlinks=False).st_blocks * BLOCK
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return files, taken
