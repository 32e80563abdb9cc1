"""The processes of a verification: the program, watched, with or without swaps; none outlives the verification."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from qrprof.kernels.running.launch import CHILD
from qrprof.kernels.running.request import Request
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.recording.relay import SIGNALLED, Child
from qrprof.profiler.recording.spawn import QUIET

LAST: Final = 2000  # bytes of a program's output that are looked at


@dataclass(frozen=True)
class Program:
    script: str  # a path, or a module's name
    args: tuple[str, ...]
    module: bool


@dataclass(frozen=True)
class Leg:
    """One process. `watch` is what `kernels.running.training.install` takes, but for the file of the record."""

    name: str
    swaps: Path | None  # a swaps.json; None: stock
    watch: dict[str, Any]


@dataclass(frozen=True)
class Started:
    child: Child
    at: float  # time.monotonic()


@dataclass(frozen=True)
class Ended:
    file: Path  # of the record, which may not be there
    code: int | None  # 128 + n for death by signal n; None: it was ended, for it took too long
    last: str  # line of what it said on stderr; ""
    seconds: float  # that it ran

    @property
    def well(self) -> bool:
        return self.code == 0 and self.file.exists()

    @property
    def how(self) -> str:
        said = f": {self.last}" if self.last else ""
        late = f"is still running after {self.seconds:.0f} s, and is ended"
        return (late if self.code is None else f"ends with exit code {self.code}") + said


def run(program: Program, leg: Leg, folder: Path, limit_s: float | None = None) -> Ended:
    """Run the program to the end of what is watched, or of the limit. What it prints is kept in `folder`.

    Raises QrprofError where our own part in it failed.
    """
    with running(program, leg, folder) as started:
        return waited_for(started, program, leg, folder, limit_s)


def run_all(
    program: Program, legs: Sequence[Leg], folder: Path, at_once: int, limit_s: float | None = None
) -> Iterator[Ended]:
    """Of which none is timed, so that several may run at a time; no more are started than are asked for."""
    for begin in range(0, len(legs), at_once):
        with ExitStack() as stack:
            now = legs[begin : begin + at_once]
            started = [stack.enter_context(running(program, leg, folder)) for leg in now]
            ended = [waited_for(one, program, leg, folder, limit_s) for one, leg in zip(started, now, strict=True)]
        yield from ended


@contextmanager
def running(program: Program, leg: Leg, folder: Path) -> Iterator[Started]:
    """The process of a leg. When this is left, nothing of it runs, nor of the workers that it has started."""
    request: Request = {
        "module": program.module,
        "swaps": None if leg.swaps is None else str(leg.swaps),
        "mode": {} if leg.watch["kind"] == "time" else {"check_every": 1},
        "training": {**leg.watch, "file": str(record_of(leg, folder))},
    }
    command = [sys.executable, "-c", CHILD, json.dumps(request), program.script, *program.args]
    started: list[Child] = []

    def start() -> None:
        with (folder / f"{leg.name}.stdout").open("wb") as out, said_by(leg, folder).open("wb") as err:
            none = subprocess.DEVNULL
            child = subprocess.Popen(command, stdin=none, stdout=out, stderr=err, env=environment(), process_group=0)
            started.append(child)

    try:
        with ThreadPoolExecutor(1) as other:  # where no signal comes between a start and its note
            other.submit(start).result()
        yield Started(started[0], time.monotonic())
    finally:
        for child in started:
            with contextlib.suppress(OSError):  # all have ended
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def waited_for(started: Started, program: Program, leg: Leg, folder: Path, limit_s: float | None) -> Ended:
    """Up to the limit, from the process's start; it may then run on."""
    file = record_of(leg, folder)
    left = None if limit_s is None else max(0.0, started.at + limit_s - time.monotonic())
    try:
        code = started.child.wait(left)
    except subprocess.TimeoutExpired:
        code = None
    error = file.with_suffix(".error")
    if error.exists():
        raise QrprofError(f"watching {program.script} failed ({leg.name}): {error.read_text(encoding='utf-8')}")
    told = SIGNALLED - code if code is not None and code < 0 else code
    return Ended(file, told, last_line(said_by(leg, folder)), time.monotonic() - started.at)


def record_of(leg: Leg, folder: Path) -> Path:
    return folder / f"{leg.name}.json"


def said_by(leg: Leg, folder: Path) -> Path:
    return folder / f"{leg.name}.stderr"


def environment() -> dict[str, str]:
    """The same order of sets in all processes."""
    return {"PYTHONHASHSEED": "0"} | QUIET | os.environ


def require(ended: Ended, program: Program) -> Path:
    """The record of a stock process. Raises QrprofError where the program failed, or ended before a step did."""
    if ended.code != 0:
        raise QrprofError(f"without the swaps {program.script} {ended.how}")
    if not ended.file.exists():
        raise QrprofError(f"{program.script} ended without importing torch; nothing can be verified", Exit.USAGE)
    return ended.file


def last_line(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LAST))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
