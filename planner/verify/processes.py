"""The processes of a verification: the program, watched, with or without swaps."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from qrprof.kernels.running.launch import CHILD
from qrprof.kernels.running.request import Request
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.recording.relay import SIGNALLED
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


def run(program: Program, leg: Leg, folder: Path) -> Ended:
    """Run the program to the end of what is watched. What it prints is kept in `folder`.

    Raises QrprofError where our own part in it failed.
    """
    file = folder / f"{leg.name}.json"
    request: Request = {
        "module": program.module,
        "swaps": None if leg.swaps is None else str(leg.swaps),
        "mode": {} if leg.watch["kind"] == "time" else {"check_every": 1},
        "training": {**leg.watch, "file": str(file)},
    }
    command = [sys.executable, "-c", CHILD, json.dumps(request), program.script, *program.args]
    said = folder / f"{leg.name}.stderr"
    with (folder / f"{leg.name}.stdout").open("wb") as out, said.open("wb") as err:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment())
        try:
            code = child.wait()
        finally:
            child.kill()  # of no effect on one that has ended
            child.wait()
    error = file.with_suffix(".error")
    if error.exists():
        raise QrprofError(f"watching {program.script} failed ({leg.name}): {error.read_text(encoding='utf-8')}")
    return Ended(file, code if code >= 0 else SIGNALLED - code, last_line(said))


def environment() -> dict[str, str]:
    """The same order of sets in all processes."""
    return {"PYTHONHASHSEED": "0"} | QUIET | os.environ


def run_all(program: Program, legs: Sequence[Leg], folder: Path, at_once: int) -> Iterator[Ended]:
    """Of which none is timed, so that several may run at a time; no more are started than are asked for."""
    for begin in range(0, len(legs), at_once):
        with ThreadPoolExecutor(at_once) as pool:
            ended = list(pool.map(lambda leg: run(program, leg, folder), legs[begin : begin + at_once]))
        yield from ended


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
