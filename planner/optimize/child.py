"""The process of job.py as its parent sees it: started without keys, asked, and ended with all that it started."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import psutil

import qrprof
from qrprof.planner.gate.keeper import remove
from qrprof.planner.gate.sandbox import PASSED_ON, installed

PREFIX: Final = "qrprof-jobs-"
WAITING: Final = "waiting"
UNSANDBOXED: Final = "--allow-unsandboxed"
COMMAND: Final = (sys.executable, "-P", "-u", "-m", "qrprof.planner.optimize.job")
OWN: Final = frozenset({"HOME", "USER", "LOGNAME", "QRPROF_CACHE", "XDG_CACHE_HOME"})  # beyond what a candidate gets
LOOK_S: Final = 0.1  # between two looks for an answer
END_S: Final = 10.0  # until the keepers of its candidates have ended these, and are gone
LAST_WORDS: Final = 300


Stop = Callable[[], str | None]  # asked all the time while an answer is waited for: why to stop, None: go on


class Stopped(Exception):
    """There is no answer, and it is not to be had any more; the text says why."""


class Crashed(Exception):
    """The process ended by itself; the text says how."""


class Child:
    """One such process. Its folder holds its answers, what it printed, and its temporary files and its candidates'."""

    def __init__(self, device: str, unsandboxed: bool, changes: Mapping[str, str]) -> None:
        """Raises OSError where it cannot be started. `changes` are those of its environment."""
        self.device = device
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        self.printed = self.folder / "printed"
        self.asked = 0
        try:
            self.process = self.started(unsandboxed, changes)
        except OSError:
            remove(str(self.folder))
            raise

    def started(self, unsandboxed: bool, changes: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        with self.printed.open("wb") as output:
            return subprocess.Popen(
                [*COMMAND, self.device, str(self.folder), *([UNSANDBOXED] if unsandboxed else [])],
                env={**environment(os.environ), "TMPDIR": str(self.folder), **changes},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a terminal's ctrl-c is for its parent
            )

    def evaluate(self, job: str, stop: Stop, limit_s: float, waiting: Callable[[str], None]) -> str:
        """The answer to a job, both as text. `waiting` is called while somebody else holds the named device.

        Raises Crashed and Stopped; then it is to be ended.
        """
        self.asked += 1
        answer = self.folder / f"answer-{self.asked}.json"
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps({"job": job, "answer": str(answer)}).encode() + b"\n")
            self.process.stdin.flush()
        self.wait(answer, stop, limit_s, waiting)
        told = answer.read_text(encoding="utf-8")
        answer.unlink()
        return told

    def wait(self, answer: Path, stop: Stop, limit_s: float, waiting: Callable[[str], None]) -> None:
        deadline = time.monotonic() + limit_s
        while not answer.exists():
            if self.process.poll() is not None and not answer.exists():
                raise Crashed(f"its process ended with exit code {self.process.returncode}; {self.last_words()}")
            if why := stop():
                raise Stopped(why)
            with contextlib.suppress(FileNotFoundError):
                waiting((self.folder / WAITING).read_text(encoding="utf-8"))
                deadline = time.monotonic() + limit_s  # its time has not begun
            if time.monotonic() > deadline:
                raise Stopped(f"it took longer than {limit_s:g} s")
            time.sleep(LOOK_S)

    def last_words(self) -> str:
        words = " ".join(self.printed.read_text(errors="replace").split())[-LAST_WORDS:]
        return f"the last it printed: {words}" if words else "it printed nothing"

    def end(self) -> None:
        """Nothing of it is left when this returns. The keepers end the candidates once it is gone."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        deadline = time.monotonic() + END_S
        while left := started_in(self.folder):
            if time.monotonic() > deadline:
                for process in left:
                    with contextlib.suppress(psutil.Error):
                        process.kill()
            psutil.wait_procs(left, timeout=LOOK_S)
        remove(str(self.folder))


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What of `environ` it gets: no keys, no tokens. It imports qrprof from where it is imported here."""
    more = [text for text in environ.get("PYTHONPATH", "").split(os.pathsep) if text]
    path = os.pathsep.join([str(Path(qrprof.__path__[0]).parent), *installed(), *more])
    return {name: value for name, value in environ.items() if name in PASSED_ON | OWN} | {"PYTHONPATH": path}


def started_in(folder: Path) -> list[psutil.Process]:
    """Processes that still run and whose temporary files are to be in `folder`: its own, keepers, and candidates."""
    return [process for process in psutil.process_iter() if runs_in(folder, process)]


def runs_in(folder: Path, process: psutil.Process) -> bool:
    try:
        here = process.environ().get("TMPDIR", "")
        return process.status() != psutil.STATUS_ZOMBIE and Path(here).is_relative_to(folder)
    except (psutil.Error, OSError):
        return False
