"""The processes of a verification: the program, watched, with or without swaps; none outlives the verification."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from qrprof.kernels.running.launch import CHILD
from qrprof.kernels.running.request import Request
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.recording.relay import SIGNALLED, Child, handled
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
class Ended:
    file: Path  # of the record, which may not be there
    code: int  # 128 + n for death by signal n
    last: str  # line of what it said on stderr; ""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this process as Ctrl-C does: after what it has started, and with exit code 128 + n."""

    def received(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(SIGNALLED + number)

    with handled((signal.SIGTERM, signal.SIGHUP), received):
        yield


def run(program: Program, leg: Leg, folder: Path) -> Ended:
    """Run the program to the end of what is watched. What it prints is kept in `folder`.

    Raises QrprofError where our own part in it failed.
    """
    with running(program, leg, folder) as child:
        return waited_for(child, program, leg, folder)


def run_all(program: Program, legs: Sequence[Leg], folder: Path, at_once: int) -> Iterator[Ended]:
    """Of which none is timed, so that several may run at a time; no more are started than are asked for."""
    for begin in range(0, len(legs), at_once):
        with ExitStack() as stack:
            now = legs[begin : begin + at_once]
            children = [stack.enter_context(running(program, leg, folder)) for leg in now]
            ended = [waited_for(child, program, leg, folder) for child, leg in zip(children, now, strict=True)]
        yield from ended


@contextmanager
def running(program: Program, leg: Leg, folder: Path) -> Iterator[Child]:
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
        yield started[0]
    finally:
        for child in started:
            with contextlib.suppress(OSError):  # all have ended
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def waited_for(child: Child, program: Program, leg: Leg, folder: Path) -> Ended:
    file = record_of(leg, folder)
    code = child.wait()
    error = file.with_suffix(".error")
    if error.exists():
        raise QrprofError(f"watching {program.script} failed ({leg.name}): {error.read_text(encoding='utf-8')}")
    return Ended(file, code if code >= 0 else SIGNALLED - code, last_line(said_by(leg, folder)))


def record_of(leg: Leg, folder: Path) -> Path:
    return folder / f"{leg.name}.json"


def said_by(leg: Leg, folder: Path) -> Path:
    return folder / f"{leg.name}.stderr"


def environment() -> dict[str, str]:
    """The same order of sets in all processes."""
    return {"PYTHONHASHSEED": "0"} | QUIET | os.environ


def require(ended: Ended, program: Program) -> Path:
    """The record of a stock process. Raises QrprofError where the program failed, or ended before a step did."""
    if ended.code:
        said = f": {ended.last}" if ended.last else ""
        raise QrprofError(f"{program.script} ends with exit code {ended.code} without the swaps{said}")
    if not ended.file.exists():
        raise QrprofError(f"{program.script} ended without importing torch; nothing can be verified", Exit.USAGE)
    return ended.file


def last_line(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LAST))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
