"""A candidate's process: started contained, waited for while what it takes is watched, ended with all it left."""

import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

import qrprof
from qrprof.planner.gate import wire
from qrprof.planner.gate.keeper import TOO_MANY, remove
from qrprof.planner.gate.limits import Limits, Usage, below, disk_exceeded, exceeded, usage
from qrprof.planner.gate.records import Detector
from qrprof.planner.gate.replies import Ended
from qrprof.planner.gate.sandbox import Layer, environment, files, installed, keeper_command
from qrprof.profiler.errors import QrprofError

CHILD = (
    "import json, sys; sys.path += json.loads(sys.argv[1])['path']; from qrprof.planner.gate.child import main; main()"
)
START_S = 180.0  # until torch is imported and the device is up
GONE_S = 5.0  # until a process that has closed its channel is gone
END_S = 30.0  # until all processes of a worker are gone
LOOK_MS = 250  # between two looks at what the processes take, which cost a few ms of a core
LAST_WORDS = 300
SIGNALLED = 128  # exit codes above it: ended by a signal, as bubblewrap says it


@contextmanager
def running(source: Path, device: str, limits: Limits, layer: Layer) -> Iterator["CandidateProcess"]:
    """The process for the candidate in `source`. When this is left, no process of it is, and none of its files."""
    # Named before it is made: a signal in between must not leave it.
    folder = Path(tempfile.gettempdir()).resolve() / f"qrprof-gate-{secrets.token_hex(8)}"
    try:
        folder.mkdir(mode=0o700)
        process = CandidateProcess(source, device, limits, layer, folder)
        try:
            yield process
        finally:
            process.end()
            process.output.close()
    finally:
        remove(str(folder))


class CandidateProcess:
    def __init__(self, source: Path, device: str, limits: Limits, layer: Layer, folder: Path) -> None:
        self.limits = limits
        self.layer = layer
        self.scratch = folder
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        copy = self.scratch / "candidate.py"
        shutil.copyfile(source, copy)
        self.ended: Ended | None = None
        self.deadline = 0.0  # of the answers to the last request
        self.before: Usage | None = None  # what was taken when the candidate was not imported yet
        self.channel, theirs = socket.socketpair()
        self.poll = select.poll()
        self.poll.register(self.channel, select.POLLIN)
        lifeline, self.lifeline = os.pipe()
        settings = {
            "channel": theirs.fileno(),
            "device": device,
            "source": str(copy),
            "folder": str(self.scratch),
            "memory_bytes": limits.memory_bytes,
            "tasks": limits.tasks,
            "included": limits.included,
            "path": [*installed(), str(Path(qrprof.__path__[0]).parent)],
        }
        command = [sys.executable, "-I", "-B", "-u", "-c", CHILD, json.dumps(settings)]
        with theirs:
            self.process = subprocess.Popen(
                keeper_command(
                    layer, files(self.scratch), command, lifeline, [theirs.fileno()], limits.tasks + own_tasks()
                ),
                env=environment(self.scratch, os.environ),
                pass_fds=[theirs.fileno(), lifeline],
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=self.output,
            )
        os.close(lifeline)
        self.root = psutil.Process(self.process.pid)

    def get_ready(self) -> None:
        """Wait until the candidate could be imported; QrprofError where it does not come so far."""
        if self.ended is not None:
            raise self.ended
        if self.before is not None:
            return
        try:
            self.deadline = time.monotonic() + START_S
            self.receive()
        except Ended as ended:
            raise QrprofError(f"cannot start a process for candidates (layer {self.layer}): {ended.detail}") from None
        self.before = usage(self.root)

    def send(self, data: bytes, fds: Sequence[int], limit_s: float) -> None:
        """Send a request; all of its answers must be there within `limit_s`. Raises Ended."""
        if self.ended is not None:
            raise self.ended
        self.deadline = time.monotonic() + limit_s
        if self.poll.poll(0):
            raise self.over("forged", "it spoke without having been asked")
        self.channel.settimeout(limit_s)
        try:
            wire.send_encoded(self.channel, data, fds)
        except wire.Closed:
            raise self.gone() from None
        except TimeoutError:
            raise self.over("hang", f"it did not take a request within {limit_s:g} s") from None

    def receive(self) -> tuple[bytes, list[int]]:
        """The next message: its text, and descriptors that the caller closes. Raises Ended."""
        try:
            return wire.receive(self.channel, self.wait)
        except wire.Closed:
            raise self.gone() from None
        except wire.Forged as forged:
            raise self.over("forged", str(forged)) from None

    def wait(self) -> None:
        """Until there is something to read. Raises Ended."""
        while True:
            left = self.deadline - time.monotonic()
            if self.poll.poll(max(0, min(1e3 * left, LOOK_MS))):
                return
            self.look()
            if left <= 0:
                raise self.over("hang", "it did not answer in time")

    def look(self) -> None:
        """End it where it takes more than it may."""
        if self.before is None:
            return
        problem = exceeded(self.root, self.before, self.limits) or disk_exceeded(self.scratch, self.output, self.limits)
        if problem is not None:
            raise self.over(*problem)

    def left_running(self) -> int:
        """Processes that the candidate has started and that still run."""
        assert self.before is not None
        return len(usage(self.root).pids - self.before.pids)

    # --- the end

    def gone(self) -> Ended:
        """Why the channel is closed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.process.wait(GONE_S)
            if self.layer == "bubblewrap" and code > SIGNALLED:
                code = SIGNALLED - code
            if code == TOO_MANY:
                return self.over("task-limit", f"it started more than {self.limits.tasks} threads and processes")
            if code < 0:
                return self.over("crash", f"its process was ended by {signal.Signals(-code).name}")
            return self.over("crash", f"its process ended with exit code {code}; {self.last_words()}")
        return self.over("forged", "it closed the channel to the gate")

    def over(self, reason: Detector, detail: str) -> Ended:
        self.ended = Ended(reason, detail)
        self.end()
        return self.ended

    def end(self) -> None:
        """Nothing of it is left when this returns."""
        if self.ended is None:
            self.ended = Ended("harness", "the worker was closed")
        self.channel.close()
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            kill([self.root, *below(self.root)])
            self.process.wait()
        if self.layer == "none":  # there it could have killed its keeper
            while left := [process for process in psutil.process_iter() if self.owns(process)]:
                kill(left)

    def owns(self, process: psutil.Process) -> bool:
        try:
            return process.status() != psutil.STATUS_ZOMBIE and process.environ().get("HOME") == str(self.scratch)
        except (psutil.Error, OSError):
            return False

    def last_words(self) -> str:
        """The end of what it printed, in one line."""
        fd = self.output.fileno()
        printed = os.pread(fd, LAST_WORDS, max(0, os.fstat(fd).st_size - LAST_WORDS))
        words = " ".join(printed.decode(errors="replace").split())
        return f"the last it printed: {words}" if words else "it printed nothing"


def own_tasks() -> int:
    """More than torch starts for itself."""
    return 64 + 4 * (os.cpu_count() or 1)


def kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=1)
