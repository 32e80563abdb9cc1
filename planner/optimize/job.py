"""The process that evaluates jobs, one after the other: `python -m qrprof.planner.optimize.job DEVICE FOLDER`.

Each line of its input is a request: a job, and the file where the answer is to be, which is there whole or not at all.
torch is imported once, and workers of trusted files live on from job to job. While it waits for the device's slot,
FOLDER holds a file that says so. When its input is closed nobody waits for it any more: it ends at once, and so does
what it has started, by the gate's keepers.
"""

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread
from time import perf_counter
from typing import Final

from qrprof.planner.gate.aten_task import stock_source
from qrprof.planner.gate.environment import machine
from qrprof.planner.gate.gate import Lane
from qrprof.planner.gate.here import judge, layer_for, workers_on
from qrprof.planner.gate.keeper import remove
from qrprof.planner.gate.pool import Pool
from qrprof.planner.gate.preview import preview
from qrprof.planner.gate.records import Stage
from qrprof.planner.gate.replies import Workers
from qrprof.planner.optimize.child import PREFIX, UNSANDBOXED, WAITING
from qrprof.planner.optimize.records import Evaluation, Job, Rung
from qrprof.planner.optimize.slots import held, slot_of
from qrprof.planner.optimize.wire import answer_text, job_in
from qrprof.profiler.store import replacing

LAST: Final[Mapping[Rung, Stage]] = {"gate": "timing", "sealed": "holdout"}
IDLE_S: Final = 900.0  # without a request, after which it makes room


@dataclass(frozen=True)
class Place:
    """Where jobs are evaluated."""

    device: str  # as an evaluation names it
    slot: str
    waiting: Path  # is there while the slot is waited for


def run(job: Job, workers: Workers, place: Place) -> Evaluation:
    """Evaluate one job in this process.

    Raises QrprofError where no process can be started, the task's device is not here, or its samples are gone.
    """
    turn = Turn(place)
    # To start and to compile takes cores, which on a CPU are what is measured.
    early = job.rung != "preview" or job.task.device == "cpu"
    with TemporaryDirectory(prefix="qrprof-job-") as folder, turn if early else nullcontext():
        source = written(Path(folder, "candidate.py"), job.source)
        parent = None if job.parent is None else written(Path(folder, "parent.py"), job.parent)
        if job.rung == "preview":
            later = None if early else turn
            look = preview(job.task, source, parent, workers=workers, rounds=job.rounds, tries=job.tries, turn=later)
            verdict = None
        else:
            look, lane = None, Lane(job.tries, lambda: job.query)
            verdict = judge(job.task, source, parent, workers, lane, until=LAST[job.rung])
    return Evaluation(job, turn.seconds, platform.node(), place.device, look, verdict)


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


class Turn:
    """The device is this process's inside."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.seconds = 0.0
        self.open = ExitStack()

    def __enter__(self) -> None:
        self.open.enter_context(held(self.place.slot, self.waiting))
        self.start = perf_counter()

    def __exit__(self, *error: object) -> None:
        self.seconds += perf_counter() - self.start
        self.open.close()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        publish(self.place.waiting, self.place.device)
        try:
            yield
        finally:
            self.place.waiting.unlink()


# --- the process


class Server:
    """Answers requests. Raises QrprofError where the device is not here, or nothing can contain a candidate."""

    def __init__(self, device: str, folder: str, options: list[str]) -> None:
        self.workers = workers_on(device, layer_for("a candidate", UNSANDBOXED in options))
        self.place = place_of(device, Path(folder, WAITING))
        self.stock: str = ""
        self.parent: str | None = None
        self.open = ExitStack()

    def evaluate(self, text: str) -> Evaluation:
        job = job_in(text)
        return run(job, self.workers_for(job), self.place)

    def workers_for(self, job: Job) -> Workers:
        """Those of the stock op live on from job to job; for previews, which accept nothing, the parent's, too."""
        stock, parent = stock_source(job.task.op), self.parent if job.parent is None else job.parent
        if (stock, parent) != (self.stock, self.parent):
            self.open.close()
            self.stock, self.parent = stock, parent
            self.verdicts = Pool(self.workers, frozenset({stock}), self.open)
            self.previews = Pool(self.verdicts, frozenset({parent} if parent else ()), self.open)
        return self.previews if job.rung == "preview" else self.verdicts


def place_of(device: str, waiting: Path) -> Place:
    found = machine(device)
    if device == "cpu":
        return Place("cpu", slot_of(found), waiting)
    return Place(f"{found['device']} {found['uuid']}", slot_of(found), waiting)


def main() -> None:
    device, folder, *options = sys.argv[1:]
    requests = SimpleQueue[str]()
    Thread(target=listen, args=(requests, Path(folder)), daemon=True).start()
    server = cache(lambda: Server(device, folder, options))  # what it raises is the answer
    while True:
        try:
            request = json.loads(requests.get(timeout=IDLE_S))
        except Empty:
            return
        publish(Path(request["answer"]), answer_text(lambda text: server().evaluate(text), request["job"]))


def listen(requests: "SimpleQueue[str]", folder: Path) -> None:
    for line in sys.stdin:
        requests.put(line)
    if folder.name.startswith(PREFIX):  # else it is not one that its parent made, and would have removed
        remove(str(folder))
    os._exit(0)


def publish(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
