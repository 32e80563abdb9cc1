"""The loop: ask for proposals, have them evaluated, keep what came of it, until something says enough.

Every event is in the ledger before it is yielded.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Final

from qrprof.planner.gate.records import Interval
from qrprof.planner.optimize import beam
from qrprof.planner.optimize.budget import Meter, for_the_end
from qrprof.planner.optimize.compose import is_composed
from qrprof.planner.optimize.control import Control
from qrprof.planner.optimize.course import RUNGS, Course, Hopeless
from qrprof.planner.optimize.finish import Finish, finish
from qrprof.planner.optimize.journal import Journal, Waiting
from qrprof.planner.optimize.lanes import split
from qrprof.planner.optimize.records import (
    Adviser,
    BudgetSpent,
    Candidate,
    End,
    Evaluator,
    Event,
    Known,
    Proposed,
    Proposer,
    Start,
)
from qrprof.profiler import units
from qrprof.profiler.errors import Exit, QrprofError

GIVE_UP: Final = 3  # times the patience without a better candidate, after which there will be none
FRUITLESS: Final = 5  # answers in a row without anything new
Lessons = Callable[[Known], tuple[str, ...]]  # that fit what is known
Ended = tuple[End, str]  # and why, the beginning of a sentence


def no_lessons(known: Known) -> tuple[str, ...]:
    return ()


@dataclass
class Guides:
    """Who is asked what to try."""

    proposer: Proposer
    adviser: Adviser | None
    lessons: Lessons
    hints: int  # that were heard
    advice: str = ""
    advised: int | None = None  # candidates that had been judged when it was asked for; None: not on this plateau


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
    mend, after the event "ended"; and at once where another process goes on with the same.
    """
    course = Course(start, evaluator, journal, meter, control or Control())
    with journal.alone(start.id):
        yield from whole(course, proposer, adviser, lessons)


def whole(course: Course, proposer: Proposer, adviser: Adviser | None, lessons: Lessons) -> Iterator[Event]:
    before = course.recall()
    guides = Guides(proposer, adviser, lessons, hints=sum(event.kind == "hint" for event in before))
    yield from begun(course, anew=not before)
    found = Finish()
    end: End = "failed"
    why = ""
    try:
        end, why = yield from explore(course, guides)
        answered(course, guides, end)
        if end not in ("cancelled", "failed"):
            yield from finish(course, found)
    except (BudgetSpent, Hopeless) as reason:
        found.remarks.append(f"the gate was not asked: {reason}")
    except QrprofError as error:
        yield ended(course, found, "failed", str(error))
        raise
    yield ended(course, found, "cancelled" if course.control.cancelled.is_set() else end, why)


def begun(course: Course, anew: bool) -> Iterator[Event]:
    start = course.start
    budget = asdict(course.meter.budget)
    if not anew:
        yield course.said("resumed", budget=budget)
        return
    yield course.said("started", target=start.target, task=start.task.id, proposer=start.proposer, budget=budget)
    if start.plan:
        yield course.said("plan", **start.plan)


def answered(course: Course, guides: Guides, end: End) -> None:
    """Raises QrprofError (exit code 3) where the proposer was asked, and never answered."""
    unheard = guides.proposer.unheard
    if unheard and end in ("budget", "exhausted") and not course.explored():
        raise QrprofError(f"no request to the model was answered: {unheard}", Exit.NO_DEVICE)


def ended(course: Course, found: Finish, end: End, why: str) -> Event:
    """The last event. Its best is what passed all stages, and has a verdict, or else the fastest by a short look."""
    best = found.winner or course.best()
    if not course.proposed:
        what = "nothing was tried"
    elif best is None:
        what = f"nothing was faster than the {'stock op' if course.start.stock else 'starting file'}"
    elif found.winner is None:
        what = f"nothing passed all stages; candidate {best.number} came to {speeds(course, best, None)}"
    else:
        what = f"candidate {best.number} passed all stages, with {speeds(course, best, found.over_stock)}"
    return course.said(
        "ended",
        end=end,
        text="; ".join(filter(None, [why, what, *found.remarks])),
        best=best.number if best else None,
        verdict=found.winner.verdict if found.winner else None,
    )


def speeds(course: Course, candidate: Candidate, over_stock: Interval | None) -> str:
    if course.start.stock:
        return f"{units.ratio(beam.mid(candidate))} the speed of the stock op"
    over = {"the starting file": candidate.over, "the stock op": over_stock}
    return ", and ".join(f"{units.ratio(speed.mid)} the speed of {base}" for base, speed in over.items() if speed)


# --- exploring


def explore(course: Course, guides: Guides) -> Generator[Event, None, Ended]:
    """Propose and evaluate until there is a reason to end."""
    # The gate is for the end: what is best may be another by then, and queries of the holdout are few.
    previews = [one for one in course.journal.waiting(course.start.id) if one.rung == "preview"]
    try:
        yield from course.evaluate(previews, for_the_end(course.meter.budget))
        return (yield from rounds(course, guides))
    except BudgetSpent as spent:
        return "budget", str(spent)
    except Hopeless as hopeless:
        return "failed", str(hopeless)


def rounds(course: Course, guides: Guides) -> Generator[Event, None, Ended]:
    held, fruitless = for_the_end(course.meter.budget), 0
    while (reason := enough(course)) is None:
        known = yield from asked(course, guides, course.meter.room(course.evaluator.slots, held))
        proposed = guides.proposer.propose(known)
        waiting = yield from taken(course, guides, proposed)
        if not waiting and proposed.done is not None:
            return "exhausted", proposed.done
        fruitless = 0 if waiting else fruitless + 1
        if fruitless == FRUITLESS:
            last = f": {proposed.troubles[-1][1]}" if proposed.troubles else ""
            return "exhausted", f"{FRUITLESS} answers in a row held nothing new{last}"
        yield from course.propose(waiting)
        yield from course.evaluate(waiting, held)
    return reason


def enough(course: Course) -> Ended | None:
    """Why to end, if there is a reason: a person's, no gain left to see, or no better candidate for long."""
    if course.control.cancelled.is_set():
        return "cancelled", "cancelled by a person"
    if text := gain_left(course):
        return "noise", text
    # Whoever goes on wants more to be tried, after a hint for instance.
    without = min(beam.since_better(course.explored()), len(course.candidates) - course.earlier)
    if without >= GIVE_UP * course.start.patience:
        return "exhausted", f"the last {without} candidates brought nothing better"
    return None


def gain_left(course: Course) -> str:
    """Where it is too small: how much. How a starting file other than the stock op stands to the run is not known."""
    stakes, best = course.start.stakes if course.start.stock else None, course.best()
    if stakes is None or stakes.noise_ns is None or best is None or stakes.op_ns <= stakes.least_ns:
        return ""
    if stakes.gain_ns < stakes.noise_ns:
        return ""  # a person asked for it all the same
    part = (stakes.op_ns / beam.mid(best) - stakes.least_ns) / (stakes.op_ns - stakes.least_ns)
    left = max(0.0, part * stakes.gain_ns)
    if left >= stakes.noise_ns:
        return ""
    return (
        f"candidate {best.number} leaves {units.time(left)} of a step to gain at most, and under"
        f" {units.time(stakes.noise_ns)} nothing could be seen"
    )


# --- one round


def asked(course: Course, guides: Guides, wanted: int) -> Generator[Event, None, Known]:
    """What the proposer is told."""
    yield from course.paused()
    start, explored = course.start, course.explored()
    hints = course.journal.hints(start.id)
    for text in hints[guides.hints :]:
        yield course.said("hint", text=text)
    guides.hints = len(hints)
    parents = [one for one in explored if not is_composed(one.proposal.source, start.source)]
    known = Known(
        start.task,
        start.source,
        beam.parents(parents, split(start.task), start.beam),
        tuple(explored),
        tuple(hints),
        start.feedback,
        plateau=beam.since_better(explored) >= start.patience,
        wanted=wanted,
    )
    known = replace(known, lessons=guides.lessons(known))
    yield from advised(course, guides, known)
    return replace(known, advice=guides.advice)


def advised(course: Course, guides: Guides, known: Known) -> Iterator[Event]:
    """On a plateau the adviser is asked, once for each stretch of it."""
    if not known.plateau:
        guides.advice, guides.advised = "", None
        return
    judged = len(known.tried)
    waits = guides.advised is not None and judged < guides.advised + course.start.patience
    if guides.adviser is None or waits:
        return
    guides.advice, guides.advised = guides.adviser.advise(known), judged
    yield course.usage("adviser")
    if guides.advice:
        yield course.said("advice", text=guides.advice)


def taken(course: Course, guides: Guides, proposed: Proposed) -> Generator[Event, None, list[Waiting]]:
    """What is new among proposals; the rest, and what else went wrong, are troubles."""
    if guides.proposer.name == "llm":
        yield course.usage("proposer")
    for what, text in proposed.troubles:
        yield course.said("trouble", what=what, text=text)
    waiting: list[Waiting] = []
    for proposal in proposed.proposals:
        if proposal.source == course.start.source:
            yield course.said("trouble", what="repeated", text="the starting file again")
            continue
        one = Waiting(course.candidate(proposal), proposed.rung, proposed.rounds)
        if one in waiting or not further(course, one):
            yield course.said("trouble", what="repeated", text=f"the file of candidate {one.candidate.number} again")
        else:
            waiting.append(one)
    return waiting


def further(course: Course, one: Waiting) -> bool:
    """Whether the file is new, or is to be looked at more closely than before."""
    known = course.candidates.get(one.candidate.sha256)
    return known is None or RUNGS.index(one.rung) > RUNGS.index(known.rung) or one.rounds > known.rounds
