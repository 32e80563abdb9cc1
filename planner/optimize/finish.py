"""The end of an optimization: the lanes' best in one file, and the gate with its sealed holdout for the best of all."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from qrprof.planner.gate.evidence import QUERIES
from qrprof.planner.gate.records import Interval
from qrprof.planner.optimize import beam
from qrprof.planner.optimize.budget import NOTHING, Held
from qrprof.planner.optimize.compose import Part, compose, is_composed
from qrprof.planner.optimize.course import Course, finding
from qrprof.planner.optimize.journal import Waiting
from qrprof.planner.optimize.lanes import Lane, first_size, place, speed, split
from qrprof.planner.optimize.records import Candidate, Event, Proposal, Rung

FINALISTS: Final = 6  # that the gate is asked about, the best first; one that fails makes way for the next
ROUNDS: Final = 9  # of a composed file's preview
ITSELF: Final = "the starting file itself, beside the stock op"


@dataclass
class Finish:
    """What came of it."""

    winner: Candidate | None = None  # passed all stages
    over_stock: Interval | None = None  # its speed
    remarks: list[str] = field(default_factory=list)  # on those that did not


def finish(course: Course, found: Finish) -> Iterator[Event]:
    """Fills in `found`. Raises what `Course.evaluate` raises."""
    proposal = composed(course) if course.meter.evaluations_left() > 1 else None
    if proposal is not None and (candidate := course.candidate(proposal)).rounds == 0:
        yield from evaluated(course, candidate, "preview", ROUNDS)
    last = finalists(course)
    for candidate in last:
        if found.remarks and candidate is not last[-1] and course.meter.evaluations_left() < 2:
            continue  # one failed already, and the last evaluation is for the last: where it starts from is the surest
        yield from sealed(course, candidate, found)
        if found.winner is not None or course.control.cancelled.is_set():
            return


def evaluated(
    course: Course, candidate: Candidate, rung: Rung, rounds: int = 0, held: Held = NOTHING
) -> Iterator[Event]:
    waiting = [Waiting(candidate, rung, rounds)]
    yield from course.propose(waiting)
    yield from course.evaluate(waiting, held)


def finalists(course: Course) -> list[Candidate]:
    """The candidates whose gain is the surest; last, where it is no stock op, the starting file itself.

    Of that one the gate is not asked again where it was refused: it is no other than it was.
    """
    gains = [
        (one.over.low, one) for one in course.explored() if beam.usable(one) and not one.lane and one.over is not None
    ]
    faster = [one for low, one in sorted(gains, key=lambda pair: -pair[0]) if low > 1][:FINALISTS]
    if course.start.stock:
        return faster
    itself = course.candidate(Proposal(course.start.source, None, ITSELF))
    return faster if itself.outcome in ("FAIL", "SUSPECT") else [*faster, itself]


def sealed(course: Course, candidate: Candidate, found: Finish) -> Iterator[Event]:
    """The gate: first without the holdout, since a query of it is spent for good.

    For the same reason there has to be more time than the gate took, before the holdout is asked.
    """
    took = NOTHING
    for rung in rungs(course, candidate):
        if rung == "sealed" and course.journal.queries(course.start.task) >= QUERIES:
            used = f"all {QUERIES} queries of the holdout are used"
            found.remarks.append(f"candidate {candidate.number} is not sealed: {used}")
            return
        yield from evaluated(course, candidate, rung, held=took)
        if course.control.cancelled.is_set():
            return
        candidate, last = course.candidates[candidate.sha256], course.last
        assert last is not None
        if last.outcome != "PASS":
            found.remarks.append(f"candidate {candidate.number} did not pass the gate, {last.outcome}: {finding(last)}")
            return
        took = Held(seconds=last.seconds, gpu_seconds=last.seconds if last.job.task.device == "cuda" else 0.0)
    assert candidate.verdict is not None
    found.winner, found.over_stock = candidate, course.journal.over_stock(candidate.verdict)


def rungs(course: Course, candidate: Candidate) -> tuple[Rung, ...]:
    """Those that are left to a candidate: an earlier process may have come to some."""
    passed = candidate.rung if candidate.outcome == "PASS" else "preview"
    if passed == "sealed":
        return ()
    alone = passed == "gate" or course.meter.evaluations_left() < 2
    return ("sealed",) if alone else ("gate", "sealed")


# --- lanes


def composed(course: Course) -> Proposal | None:
    """The best of each lane in one file; None where one candidate is about as good on all of them.

    One of files that are several in one already would not let Triton find their lines.
    """
    task, lanes = course.start.task, split(course.start.task)
    if is_composed(course.start.source):
        return None
    single = [one for one in course.explored() if beam.usable(one) and not is_composed(one.proposal.source)]
    winners = [(lane, winner) for lane in lanes if (winner := fastest(single, lane)) is not None]
    alone = max((beam.mid(one) for one in single if not one.lane), default=1.0)
    if len(lanes) < 2 or not winners or expected(lanes, winners) <= beam.MARGIN * max(alone, 1.0):
        return None
    parts = [Part(winner.proposal.source, lane.boxes) for lane, winner in winners]
    names = ", ".join(f"{winner.number} for {lane.name}" for lane, winner in winners)
    best = max((winner for _, winner in winners), key=beam.mid)
    return Proposal(compose(parts, course.start.source, place(task), first_size(task)), best.sha256, f"lanes: {names}")


def fastest(candidates: list[Candidate], lane: Lane) -> Candidate | None:
    """None: none is faster than the starting file there."""
    here = [one for one in candidates if one.lane in ("", lane.name) and speed(one, lane) > beam.MARGIN]
    return max(here, key=lambda one: (speed(one, lane), -one.number), default=None)


def expected(lanes: tuple[Lane, ...], winners: list[tuple[Lane, Candidate]]) -> float:
    """The speed over the starting file of a file that takes the winner on each lane."""
    speeds = {lane.name: speed(winner, lane) for lane, winner in winners}
    weights = {lane.name: sum(case.weight for case in lane.cases) for lane in lanes}
    return sum(weights.values()) / sum(weight / speeds.get(name, 1.0) for name, weight in weights.items())
