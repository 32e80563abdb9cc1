"""Optimizations in a ledger as a process would write them, an event every ten seconds."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from gate_tasks import MM

from qrprof.planner.gate.records import Interval
from qrprof.planner.ledger import opened
from qrprof.planner.optimize.journal import Journal, Judged, Waiting, hash_of
from qrprof.planner.optimize.records import Budget, Candidate, Event, EventKind, Proposal, Start, Usage

BEGAN: Final = datetime(2026, 2, 1, 9, tzinfo=UTC)
BUDGET: Final = {"seconds": 1800.0, "evaluations": 40, "dollars": 2.0, "tokens": None, "gpu_seconds": None}


@dataclass
class Scribe:
    """Writes what an optimizer writes."""

    root: Path
    target: str = "aten::linalg_qr"
    name: str = "20260201-090000-linalg_qr"
    events: int = 0
    source: str = "def candidate(a, b): ..."  # of the file that it begins with

    def __post_init__(self) -> None:
        self.journal = Journal(partial(opened, self.root), self.now)
        start = Start(self.name, MM, self.source, "search", target=self.target, run_id="example")
        self.start = self.journal.begin(replace(start, budget=Budget()))
        self.name = self.start.id

    def now(self) -> datetime:
        return BEGAN + timedelta(seconds=10 * self.events)

    def event(self, kind: EventKind, **record: Any) -> Event:
        self.events += 1
        return Event(kind, record, self.journal.stamp())

    def said(self, kind: EventKind, **record: Any) -> None:
        self.journal.add_events(self.name, [self.event(kind, **record)])

    def started(self) -> None:
        self.said("started", target=self.target, task=MM.id, proposer="search", budget=BUDGET)
        self.said("plan", text="a step of 39.4 ms may become 20.7 ms; it may cost 30 min")

    def proposed(self, number: int, changed: str) -> Candidate:
        source = f"# {changed}\ndef candidate(a, b):\n    return a @ b  # {number}\n"
        one = Candidate(number, hash_of(source), Proposal(source, None, changed), "preview", "UNKNOWN", None, "")
        event = self.event("proposed", number=number, sha256=one.sha256, changed=changed)
        self.journal.await_all(self.start, [Waiting(one, "preview", 3)], [event])
        return one

    def judged(self, one: Candidate, outcome: Any, speed: float | None = None, why: str = "") -> None:
        over = None if speed is None else Interval(0.95 * speed, speed, 1.05 * speed)
        known = replace(one, outcome=outcome, over=over, why=why)
        told = None if over is None else {"low": over.low, "mid": over.mid, "high": over.high}
        record = {"outcome": outcome, "over": told, "why": why, "rung": "preview", "seconds": 2.0}
        events = [self.event("judged", number=one.number, host="here", device="cpu", **record)]
        if speed is not None and speed > 1:
            events.append(self.event("better", number=one.number, over=told))
        self.journal.judge(self.start, Judged(known, "preview", 3, outcome, None), events)
        spent = {"evaluator": Usage(seconds=10.0 * self.events, evaluations=one.number)}
        self.journal.keep_spent(self.name, spent)  # type: ignore[arg-type]  # one of the roles

    def ended(self, end: str = "budget", text: str = "40 evaluations are used up", best: int | None = None) -> None:
        self.said("ended", end=end, text=text, best=best, verdict=None)


def add_course(
    root: Path, *, ended: bool = True, target: str = "aten::linalg_qr", start: str = "def candidate(a, b): ..."
) -> Scribe:
    """An optimization with a better candidate, a wrong one, a lost one and, where it goes on, one under evaluation."""
    scribe = Scribe(root, target, source=start)
    scribe.started()
    scribe.judged(scribe.proposed(1, "WARPS 4 -> 8"), "PASS", 1.25)
    scribe.judged(scribe.proposed(2, "WIDTH 32 -> 64"), "FAIL", None, "result 0 is wrong by 7 units on case 8x8")
    scribe.judged(scribe.proposed(3, "WARPS 8, WIDTH 16"), "PASS", 2.0)
    scribe.judged(scribe.proposed(4, "STAGES 2 -> 5"), "INFRA", None, "its process ended with exit code -9")
    scribe.said("trouble", what="repeated", text="the file of candidate 3 again")
    if ended:
        scribe.ended(best=3)
    else:
        scribe.proposed(5, "WARPS 16")
    return scribe
