"""An optimization under way: what it has come to, and how its candidates are evaluated and kept."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Final, get_args

from qrprof.planner.gate import evidence
from qrprof.planner.gate.evidence import QUERIES
from qrprof.planner.gate.records import Finding, Verdict
from qrprof.planner.optimize import beam, lanes
from qrprof.planner.optimize.budget import NOTHING, Held, Meter, Spender
from qrprof.planner.optimize.control import Control
from qrprof.planner.optimize.journal import Journal, Judged, Waiting, hash_of
from qrprof.planner.optimize.records import (
    BudgetSpent,
    Candidate,
    Evaluation,
    Evaluator,
    Event,
    EventKind,
    Job,
    Proposal,
    Rung,
    Start,
    Usage,
)

POLL_S: Final = 0.2  # between looks at what ends an evaluation
LOST: Final = 3  # evaluations in a row that a machine failed, after which it is given up
UNASKED: Final = Finding("seed-known", "UNKNOWN", None, "the sealed holdout was not asked yet", "holdout")
RUNGS: Final[tuple[Rung, ...]] = get_args(Rung)  # the lowest first


class Hopeless(Exception):
    """The machine fails again and again; the text says how."""


@dataclass
class Course:
    start: Start
    evaluator: Evaluator
    journal: Journal
    meter: Meter
    control: Control
    proposed: dict[str, Candidate] = field(default_factory=dict)  # by sha256, judged or not
    kept: set[str] = field(default_factory=set)  # sha256 of those in the journal
    candidates: dict[str, Candidate] = field(default_factory=dict)  # those that were judged
    earlier: int = 0  # of them by other processes
    last: Evaluation | None = None
    lost: int = 0  # evaluations in a row
    cut: bool = False  # the last evaluations were ended by us

    def recall(self) -> list[Event]:
        """Take up what earlier processes came to, and return their events."""
        id_, journal = self.start.id, self.journal
        self.candidates = {one.sha256: one for one in journal.candidates(id_)}
        self.proposed = {one.candidate.sha256: one.candidate for one in journal.waiting(id_)} | self.candidates
        self.kept, self.earlier = set(self.proposed), len(self.candidates)
        return journal.events(id_)

    # --- events

    def event(self, kind: EventKind, record: Mapping[str, object]) -> Event:
        return Event(kind, record, self.journal.stamp())

    def said(self, kind: EventKind, **record: object) -> Event:
        """An event that is kept."""
        event = self.event(kind, record)
        self.journal.add_events(self.start.id, [event])
        return event

    def usage(self, role: Spender) -> Event:
        return self.said("usage", role=role, **asdict(self.meter.spent()[role]))

    # --- candidates

    def explored(self) -> list[Candidate]:
        """Those that were judged, but for the starting file, oldest first."""
        found = [one for one in self.candidates.values() if one.sha256 != hash_of(self.start.source)]
        return sorted(found, key=lambda one: one.number)

    def best(self) -> Candidate | None:
        return beam.best(self.explored())

    def candidate(self, proposal: Proposal) -> Candidate:
        """The one of this file, with a number of its own where it is new."""
        sha256 = hash_of(proposal.source)
        number = max((one.number for one in self.proposed.values()), default=0) + 1
        new = Candidate(number, sha256, proposal, "preview", "UNKNOWN", None, "", lane=proposal.lane)
        return self.proposed.setdefault(sha256, new)

    def propose(self, waiting: Sequence[Waiting]) -> list[Event]:
        """Keep what is to be evaluated. There is an event of each file that is new."""
        new = [one.candidate for one in waiting if one.candidate.sha256 not in self.kept]
        events = [
            self.event("proposed", {"number": one.number, "sha256": one.sha256, "changed": one.proposal.changed})
            for one in new
        ]
        self.journal.await_all(self.start, waiting, events)
        self.kept |= {one.sha256 for one in new}
        return events

    # --- evaluations

    def evaluate(self, waiting: Sequence[Waiting], held: Held = NOTHING) -> Iterator[Event]:
        """Evaluate and keep, as many at once as there are slots. Stops where a person cancels.

        Raises BudgetSpent, and Hopeless.
        """
        rest = list(waiting)
        while rest:
            yield from self.paused()
            if self.control.cancelled.is_set():
                return
            count = self.meter.submit(min(len(rest), self.evaluator.slots), held)
            now, rest = rest[:count], rest[count:]
            jobs = self.jobs(now)
            with self.watched(jobs):
                found = self.evaluator.evaluate(jobs)
            on_gpu = [evaluation for evaluation in found if evaluation.job.task.device == "cuda"]
            self.meter.count(Usage(gpu_seconds=sum(evaluation.seconds for evaluation in on_gpu)))
            for one, evaluation in zip(now, found, strict=True):
                yield from self.judged(one, evaluation)
            yield self.usage("evaluator")
            if self.cut and not self.control.cancelled.is_set():
                raise BudgetSpent("what ran was ended when the seconds of the budget were used up")
            if self.lost >= LOST:
                raise Hopeless(f"{self.lost} evaluations in a row were lost: {found[-1].lost}")

    def jobs(self, waiting: Sequence[Waiting]) -> list[Job]:
        """A query of the holdout is counted before the job that makes it is there."""
        tries = self.journal.tries(self.start.task)
        return [
            Job(
                task=lanes.part(self.start.task, one.candidate.lane),
                source=one.candidate.proposal.source,
                parent=self.base_of(one.candidate),
                rung=one.rung,
                tries=tries + number,
                query=self.query(one.candidate) if one.rung == "sealed" else None,
                rounds=one.rounds,
            )
            for number, one in enumerate(waiting, 1)
        ]

    def base_of(self, candidate: Candidate) -> str | None:
        """What it has to beat beside the stock op."""
        source = self.start.source
        return None if self.start.stock or candidate.proposal.source == source else source

    def query(self, candidate: Candidate) -> int | None:
        return self.journal.count_holdout(self.start.task, candidate, QUERIES)

    def judged(self, one: Waiting, evaluation: Evaluation) -> Iterator[Event]:
        if evaluation.lost is not None and self.cut:
            return  # it is still to be evaluated
        self.lost = self.lost + 1 if evaluation.lost is not None else 0
        before, candidate = self.best(), after(self.proposed[one.candidate.sha256], one, evaluation)
        if candidate.proposal.source == self.start.source:
            candidate = replace(candidate, over=None)  # it was over the stock op
        self.candidates[candidate.sha256] = self.proposed[candidate.sha256] = candidate
        self.last = evaluation
        events = [self.event("judged", told(one, candidate, evaluation))]
        now = self.best()
        if now is not None and is_news(now, before):
            events.append(self.event("better", {"number": now.number, "over": now.over and asdict(now.over)}))
        kept = None
        if evaluation.verdict is not None:
            base = None if self.base_of(candidate) is None else f"{self.start.id}#start"
            file = f"{self.start.id}#{candidate.number}"
            kept = evidence.made(as_kept(evaluation.verdict, one.rung), file, base, self.journal.now())
        queried = evaluation.job.query is not None
        judged = Judged(candidate, one.rung, one.rounds, evaluation.outcome, kept, queried)
        self.journal.judge(self.start, judged, events)
        yield from events

    # --- what ends them

    def over(self) -> bool:
        return self.control.cancelled.is_set() or self.meter.seconds_left() <= 0

    @contextmanager
    def watched(self, jobs: Sequence[Job]) -> Iterator[None]:
        """What runs inside is ended by a person, and at the budget's seconds."""
        began, done, self.cut = self.meter.clock(), threading.Event(), False
        on_gpu = sum(job.task.device == "cuda" for job in jobs)
        gpu_seconds_left = self.meter.gpu_seconds_left()

        def watch() -> None:
            while not done.wait(POLL_S):
                used = on_gpu * (self.meter.clock() - began)
                if self.over() or (on_gpu and used >= gpu_seconds_left):
                    self.cut = True
                    self.evaluator.cancel()  # again and again: one that is only about to begin forgets it

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        except BaseException:  # what was used until then counts
            self.meter.count(Usage(gpu_seconds=on_gpu * (self.meter.clock() - began)))
            raise
        finally:
            done.set()
            thread.join()

    def paused(self) -> Iterator[Event]:
        if self.control.going.is_set():
            return
        yield self.said("paused")
        began = self.meter.clock()
        self.control.going.wait()
        self.meter.skip(self.meter.clock() - began)
        yield self.said("resumed")


def is_news(best: Candidate, before: Candidate | None) -> bool:
    """Another one than before, which may have been timed again and fallen back, or the same and faster."""
    return before is None or best.number != before.number or beam.mid(best) > beam.mid(before)


def after(candidate: Candidate, one: Waiting, evaluation: Evaluation) -> Candidate:
    """The candidate as an evaluation makes it known: a machine that failed says nothing of it.

    Nor does a look that is less close than one before: what the gate refused is not made good by a short timing.
    """
    rounds = max(candidate.rounds, one.rounds)
    if RUNGS.index(one.rung) < RUNGS.index(candidate.rung):
        return replace(candidate, rounds=rounds)
    known = evaluation.outcome != "INFRA" or candidate.over is None
    preview, verdict = evaluation.preview, evaluation.verdict
    return replace(
        candidate,
        rung=one.rung if known else candidate.rung,
        outcome=evaluation.outcome if known else candidate.outcome,
        over=evaluation.over or candidate.over,
        why=finding(evaluation) if known else candidate.why,
        verdict=verdict.id if verdict else candidate.verdict,
        rounds=rounds,
        cases=preview.cases if preview and preview.cases else candidate.cases,
    )


def as_kept(verdict: Verdict, rung: Rung) -> Verdict:
    """As it is kept, where a PASS is one of all stages."""
    if rung == "sealed" or verdict.outcome != "PASS":
        return verdict
    return replace(verdict, outcome="UNKNOWN", findings=(*verdict.findings, UNASKED))


def finding(evaluation: Evaluation) -> str:
    """What decided, one sentence; "" of what passed."""
    if evaluation.lost is not None:
        return evaluation.lost
    if evaluation.outcome == "PASS":
        return ""
    if evaluation.verdict is not None:
        found = [one.detail for one in evaluation.verdict.findings if one.outcome == evaluation.outcome]
        return found[0] if found else ""
    return evaluation.preview.findings[0] if evaluation.preview and evaluation.preview.findings else ""


def told(one: Waiting, candidate: Candidate, evaluation: Evaluation) -> dict[str, object]:
    return {
        "number": candidate.number,
        "outcome": evaluation.outcome,
        "over": told_interval(evaluation),
        "why": finding(evaluation),
        "rung": one.rung,
        "seconds": evaluation.seconds,
        "host": evaluation.host,
        "device": evaluation.device,
    }


def told_interval(evaluation: Evaluation) -> dict[str, float] | None:
    return asdict(evaluation.over) if evaluation.over else None
