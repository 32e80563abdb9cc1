"""An optimization under way: what it has come to, and how candidates are evaluated and kept."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from qrprof.planner.gate import evidence
from qrprof.planner.optimize.budget import Meter
from qrprof.planner.optimize.control import Control
from qrprof.planner.optimize.journal import Journal, Judged, Waiting
from qrprof.planner.optimize.records import (
    Candidate,
    Evaluation,
    Evaluator,
    Event,
    EventKind,
    Job,
    Start,
    Usage,
)

POLL_S: Final = 0.2  # between looks at what may end an evaluation


@dataclass
class Course:
    start: Start
    evaluator: Evaluator
    journal: Journal
    meter: Meter
    control: Control
    candidates: dict[str, Candidate] = field(default_factory=dict)  # that were judged, by sha256, oldest first
    numbers: int = 0  # given to candidates so far

    @property
    def base(self) -> str | None:
        """What candidates have to beat beside the stock op."""
        return None if self.start.stock else self.start.source

    def event(self, kind: EventKind, record: Mapping[str, object]) -> Event:
        return Event(kind, record, self.journal.stamp())

    def said(self, kind: EventKind, **record: object) -> Event:
        """An event that is kept."""
        event = self.event(kind, record)
        self.journal.add_events(self.start.id, [event])
        return event

    # --- evaluating

    def evaluate(self, waiting: Sequence[Waiting], held: int = 0) -> Iterator[Event]:
        """Evaluate and keep, as many at once as there are slots; `held` evaluations of the budget are left alone.

        Raises BudgetSpent.
        """
        rest = list(waiting)
        while rest and not self.control.cancelled.is_set():
            some = min(len(rest), self.evaluator.slots, self.meter.evaluations_left() - held)
            now, rest = rest[: int(some)], rest[int(some) :]
            self.meter.submit(max(1, len(now)))
            with self.watched(len(now)):
                found = self.evaluator.evaluate([self.job(one) for one in now])
            for one, evaluation in zip(now, found, strict=True):
                yield from self.judged(one, evaluation)

    def job(self, one: Waiting) -> Job:
        tries = self.journal.tries(self.start.task) + 1
        return Job(self.start.task, one.candidate.proposal.source, self.base, one.rung, tries, rounds=one.rounds)

    @contextmanager
    def watched(self, jobs: int) -> Iterator[None]:
        yield

    def judged(self, one: Waiting, evaluation: Evaluation) -> Iterator[Event]:
        on_gpu = evaluation.device != "cpu"
        self.meter.count(Usage(gpu_seconds=evaluation.seconds if on_gpu else 0.0))
        candidate = after(one.candidate, one, evaluation)
        verdict = evaluation.verdict
        kept = None
        if verdict is not None:
            kept = evidence.made(verdict, f"{self.start.id} #{candidate.number}", None, self.journal.now())
        record = {
            "number": candidate.number,
            "outcome": evaluation.outcome,
            "over": asdict(evaluation.over) if evaluation.over else None,
            "why": candidate.why,
            "rung": one.rung,
            "seconds": evaluation.seconds,
            "host": evaluation.host,
            "device": evaluation.device,
        }
        events = [self.event("judged", record)]
        self.journal.judge(self.start, Judged(candidate, one.rung, one.rounds, evaluation.outcome, kept), events)
        self.candidates[candidate.sha256] = candidate
        yield from events


def after(candidate: Candidate, waiting: Waiting, evaluation: Evaluation) -> Candidate:
    """The candidate as an evaluation makes it known."""
    return replace(
        candidate,
        rung=waiting.rung,
        outcome=evaluation.outcome,
        over=evaluation.over or candidate.over,
        why=first_finding(evaluation),
        verdict=evaluation.verdict.id if evaluation.verdict else candidate.verdict,
        rounds=max(candidate.rounds, waiting.rounds),
        cases=evaluation.preview.cases if evaluation.preview else candidate.cases,
    )


def first_finding(evaluation: Evaluation) -> str:
    if evaluation.lost is not None:
        return evaluation.lost
    if evaluation.verdict is not None:
        return next((f.detail for f in evaluation.verdict.findings if f.outcome == evaluation.outcome != "PASS"), "")
    return next(iter(evaluation.preview.findings), "") if evaluation.preview else ""
