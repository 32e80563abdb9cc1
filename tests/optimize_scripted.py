"""The optimizer's parts without a model, a process or time: what they answer is scripted, and seconds pass as told."""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch

from qrprof.planner.gate.records import (
    ArgSpec,
    Domain,
    Finding,
    Interval,
    Outcome,
    Preview,
    Task,
    TaskCase,
    Tolerance,
    Verdict,
)
from qrprof.planner.ledger import opened
from qrprof.planner.optimize.budget import Meter
from qrprof.planner.optimize.journal import Journal, hash_of
from qrprof.planner.optimize.loop import optimize
from qrprof.planner.optimize.records import (
    Evaluation,
    Evaluator,
    Event,
    Job,
    Known,
    Proposal,
    Proposed,
    Proposer,
    ProposerName,
    Start,
)


def case(*shape: int, weight: float = 1.0) -> TaskCase:
    return TaskCase("x".join(map(str, shape)), weight, (ArgSpec(shape, "float32"),))


TASK = Task("mm-test", "mm", "cpu", (case(8, 8),), Domain(), "relative", Tolerance(), "built in")


def file(speed: float | Mapping[str, float], outcome: Outcome = "PASS", note: str = "", **later: Outcome) -> str:
    """A candidate of this speed over the starting file, or of one by case. `later`: outcomes on higher rungs."""
    lines = [f"speed = {speed!r}", f"outcomes = { ({'preview': outcome} | later)!r}", f"# {note}"]
    return "\n".join([*lines, "", "", "def candidate(*args):", "    return speed", ""])


MANY = [file(1.0, note=str(number)) for number in range(60)]  # none better


START = file(1.0, note="the starting file")


class Clock:
    """Seconds that pass only when someone says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime(2026, 1, 31, 12, tzinfo=UTC) + timedelta(seconds=self.seconds)


class ScriptedProposer:
    """Gives one answer after the other: a file, several, an answer, or what a function makes of what is known.

    It is `done` after the last. Files that were tried before are passed over, as after a new start. `unheard`: what it
    says of requests that were never answered.
    """

    def __init__(self, *answers: "Answer", name: ProposerName = "search", unheard: str = "") -> None:
        self.name: ProposerName = name
        self.unheard = unheard
        self.answers = iter(answers)
        self.told: list[Known] = []

    def propose(self, known: Known) -> Proposed:
        self.told.append(known)
        tried = {one.proposal.source for one in known.tried}
        for answer in self.answers:
            if isinstance(answer, Proposed):
                return answer
            if callable(answer):
                return answer(known)
            sources = [one for one in ([answer] if isinstance(answer, str) else answer) if one not in tried]
            if sources:
                return proposed(*sources)
        return Proposed(done="all answers were given")


def proposed(*sources: str, **fields: Any) -> Proposed:
    return Proposed(tuple(Proposal(one, None, f"has {one.splitlines()[0]}") for one in sources), **fields)


Answer = str | Sequence[str] | Proposed | Callable[[Known], Proposed]


@dataclass
class ScriptedEvaluator:
    """Evaluates a file by what stands in it (see `file`), without running it. Each takes `seconds`, on the clock."""

    clock: Clock
    seconds: float = 10.0
    slots: int = 1
    spread: float = 0.01  # of a speed
    sealed: bool = True  # the gate comes to its holdout
    before: Callable[[Sequence[Job]], None] = lambda jobs: None  # called with the jobs of each request
    jobs: list[Job] = field(default_factory=list)  # that came
    cancelled: threading.Event = field(default_factory=threading.Event)

    def evaluate(self, jobs: Sequence[Job]) -> list[Evaluation]:
        self.jobs += jobs
        self.before(jobs)
        self.clock.seconds += self.seconds
        found = [self.lost(job) if self.cancelled.is_set() else self.evaluation(job) for job in jobs]
        self.cancelled.clear()
        return found

    def cancel(self) -> None:
        self.cancelled.set()

    def lost(self, job: Job) -> Evaluation:
        return Evaluation(job, self.seconds, "here", job.task.device, lost="it was cancelled")

    def evaluation(self, job: Job) -> Evaluation:
        told = namespace(job.source)
        outcome = told["outcomes"].get(job.rung, "PASS")
        device = "cpu" if job.task.device == "cpu" else "GPU 0"
        evaluation = Evaluation(job, self.seconds, "here", device)
        if outcome == "INFRA":
            return replace(evaluation, device=job.task.device, lost="the host is gone")
        speeds = {one.name: speed_of(told, one) for one in job.task.development}
        cases = {name: self.interval(speed) for name, speed in speeds.items()}
        over = self.interval(1 / sum(one.weight / speeds[one.name] for one in job.task.development))
        if job.rung != "preview":
            return replace(evaluation, verdict=self.verdict(job, outcome, over))
        if outcome == "FAIL":
            return replace(evaluation, preview=Preview(outcome, ("wrong on one case",), None))
        return replace(evaluation, preview=Preview(outcome, (), over, 0.01, cases))

    def interval(self, speed: float) -> Interval:
        return Interval(speed * (1 - self.spread), speed, speed * (1 + self.spread))

    def verdict(self, job: Job, outcome: Outcome, over: Interval) -> Verdict:
        findings = () if outcome == "PASS" else (Finding("wrong", outcome, None, "wrong on one case", "adversarial"),)
        return Verdict(
            id=f"{len(self.jobs)}-{job.rung}-{hash_of(job.source)[:8]}",
            task=job.task.id,
            candidate=hash_of(job.source),
            outcome=outcome,
            findings=findings,
            times=(),
            costs=(),
            layer="none",
            holdout_queries=(job.query or 0) if self.sealed else 0,
            tries=job.tries,
            speedup=over,
            over_parent=over if job.parent is not None else None,
        )


def namespace(source: str) -> dict[str, Any]:
    """What a file of `file`, or one composed of such files, defines."""
    found: dict[str, Any] = {"outcomes": {}, "__name__": "candidate", "__file__": "candidate.py"}
    exec(source, found)  # noqa: S102 - text of `file`
    return found


def speed_of(names: Mapping[str, Any], case: TaskCase) -> float:
    speed = names["candidate"](*(torch.empty(spec.shape) for spec in case.tensors))
    return float(speed[case.name] if isinstance(speed, Mapping) else speed)


# --- put together


@dataclass
class Bench:
    """A ledger in a folder, and what an optimization needs beside its proposer."""

    root: Path
    clock: Clock = field(default_factory=Clock)

    @contextmanager
    def connect(self) -> Iterator[sqlite3.Connection]:
        """The ledger, whose commits do not wait for the disk: no test cuts the power."""
        with opened(self.root) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            yield connection

    @property
    def journal(self) -> Journal:
        return Journal(self.connect, self.clock.now)

    def begin(self, **fields: Any) -> Start:
        given = {"id": "test", "task": TASK, "source": START, "proposer": "search", "stock": True, **fields}
        return self.journal.begin(Start(**given))

    def evaluator(self, **fields: Any) -> ScriptedEvaluator:
        return ScriptedEvaluator(self.clock, **fields)

    def run(self, start: Start, proposer: Proposer, evaluator: Evaluator | None = None, **fields: Any) -> list[Event]:
        """The events of an optimization from here to its end."""
        meter = fields.pop("meter", None) or self.meter(start)
        return list(optimize(start, proposer, evaluator or self.evaluator(), self.journal, meter, **fields))

    def meter(self, start: Start) -> Meter:
        return Meter(start.budget, self.clock, self.journal.spent(start.id), partial(self.journal.keep_spent, start.id))


# --- what came of it


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events if event.kind != "usage"]


def of(kind: str, events: list[Event]) -> list[Any]:
    return [event.record for event in events if event.kind == kind]


def ended(events: list[Event]) -> Any:
    assert events[-1].kind == "ended"
    return events[-1].record
