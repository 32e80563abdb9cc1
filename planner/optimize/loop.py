"""The loop: ask for proposals, have them evaluated, keep what came of it, until something says enough.

Every event is in the ledger before it is yielded.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace

from qrprof.planner.optimize.budget import Meter
from qrprof.planner.optimize.control import Control
from qrprof.planner.optimize.course import Course
from qrprof.planner.optimize.journal import Journal, Waiting, hash_of
from qrprof.planner.optimize.records import (
    Adviser,
    BudgetSpent,
    Candidate,
    Evaluator,
    Event,
    Known,
    Proposal,
    Proposer,
    Start,
)

Lessons = Callable[[Known], tuple[str, ...]]  # that fit what is known


def no_lessons(known: Known) -> tuple[str, ...]:
    return ()


def optimize(
    start: Start,
    proposer: Proposer,
    evaluator: Evaluator,
    journal: Journal,
    meter: Meter,
    *,
    control: Control | None = None,
    adviser: Adviser | None = None,
    lessons: Lessons = no_lessons,
) -> Iterator[Event]:
    """Begin, or go on with, the optimization `start`, which `journal.begin` or `journal.start` gave.

    `meter` is made with what was spent before, and keeps what is spent:
    `Meter(start.budget, clock, journal.spent(start.id), partial(journal.keep_spent, start.id))`; the proposer and the
    adviser have the same one. `lessons` is asked before each proposal. Raises QrprofError for what a person has to
    mend, after the event "ended".
    """
    course = Course(start, evaluator, journal, meter, control or Control())
    course.candidates = {one.sha256: one for one in journal.candidates(start.id)}
    course.numbers = max((one.number for one in course.candidates.values()), default=0)
    yield course.said(
        "started", target=start.target, task=start.task.id, proposer=start.proposer, budget=asdict(start.budget)
    )
    end, text = "exhausted", ""
    try:
        while True:
            known = Known(start.task, start.source, tried=tuple(course.candidates.values()), wanted=evaluator.slots)
            proposed = proposer.propose(replace(known, lessons=lessons(known)))
            if proposed.done is not None:
                text = proposed.done
                break
            waiting = [
                Waiting(course_candidate(course, one), proposed.rung, proposed.rounds) for one in proposed.proposals
            ]
            events = [
                course.event(
                    "proposed",
                    {
                        "number": w.candidate.number,
                        "sha256": w.candidate.sha256,
                        "changed": w.candidate.proposal.changed,
                    },
                )
                for w in waiting
            ]
            journal.await_all(start, waiting, events)
            yield from events
            yield from course.evaluate(waiting)
    except BudgetSpent as spent:
        end, text = "budget", str(spent)
    yield course.said("ended", end=end, text=text, best=None, verdict=None)


def course_candidate(course: Course, proposal: Proposal) -> Candidate:
    sha256 = hash_of(proposal.source)
    if sha256 in course.candidates:
        return course.candidates[sha256]
    course.numbers += 1
    return Candidate(course.numbers, sha256, proposal, "preview", "UNKNOWN", None, "", lane=proposal.lane)
