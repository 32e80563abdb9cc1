"""What the optimizer view reads in the ledger, and lists of it: as `qrprof history`, and beside it what goes on now."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qrprof.planner.ledger import ledger_file
from qrprof.planner.optimize.budget import Spent, texts, together
from qrprof.planner.optimize.journal import Listed, journal_of
from qrprof.planner.optimize.records import Budget, Event
from qrprof.profiler import units
from qrprof.tui.app.optimizer_course import Course, Tried
from qrprof.tui.app.widgets.grid import Head, Line, Value
from qrprof.tui.output import clean, full
from qrprof.tui.progress import speed
from qrprof.tui.ranking import short

if TYPE_CHECKING:
    from qrprof.tui.app.runner import Runner

WHY: Final = 60  # cells of a reason in the table; all of it is in the status line
OPEN: Final = "not ended"
COURSES: Final = (
    Head("optimization", "optimization"),
    Head("of", "of"),
    Head("tried", "tried"),
    Head("state", "state"),
)
CANDIDATES: Final = (
    Head("candidate", "candidate"),
    Head("best", "", sorts=False),
    Head("rung", "rung"),
    Head("outcome", "outcome"),
    Head("speed", "speed"),
    Head("range", "low..high", spare=1, sorts=False),
    Head("why", "why", spare=2, sorts=False),
)


@dataclass(frozen=True)
class Look:
    """What the ledger holds now, of one optimization only what was not seen before."""

    listed: Sequence[Listed] = ()
    id: str | None = None  # of the one that is shown; None: there is none
    seen: int = 0  # its events that came before these
    events: Sequence[Event] = ()
    waiting: Sequence[tuple[str, int]] = ()  # rung and number of what is to be evaluated
    spent: Spent | None = None


def look(root: Path, wanted: str | None, seen: int) -> Look:
    """`wanted` is shown, or else the newest. Raises QrprofError where the ledger cannot be read."""
    if not ledger_file(root).exists():
        return Look()
    journal = journal_of(root)
    listed = journal.optimizations()
    if not listed:
        return Look()
    name = next((one.id for one in listed if one.id == wanted), listed[0].id)
    seen = seen if name == wanted else 0
    waiting = [(one.rung, one.candidate.number) for one in journal.waiting(name)]
    return Look(listed, name, seen, journal.events(name, seen), waiting, journal.spent(name))


def source_of(root: Path, optimization: str, number: int) -> str | None:
    """The file of a candidate; None where it is not judged yet. Raises QrprofError."""
    found = journal_of(root).candidates(optimization)
    return next((one.proposal.source for one in found if one.number == number), None)


# --- rows


def course_line(one: Listed, runner: "Runner | None") -> Line:
    own = runner is not None and runner.runs and runner.optimization == one.id
    state = ("paused" if runner and runner.paused else "runs") if own else state_of(one)
    of = short(one.target) or one.task
    cells = (one.id, of, str(one.candidates), state)
    return Line(one.id, cells, (one.id, of, one.candidates, state))


def state_of(one: Listed) -> str:
    return str(one.ended["end"]) if one.ended else OPEN


def candidate_line(one: Tried, best: int | None) -> Line:
    over = one.over
    cells = (
        f"#{one.number} {one.changed}",
        "*" if one.number == best else "",
        one.rung or "waits",
        one.outcome or units.MISSING,
        units.ratio(over["mid"] if over else None),
        f"{units.ratio(over['low'])}..{units.ratio(over['high'])}" if over else units.MISSING,
        full(one.why, WHY),
    )
    values: tuple[Value, ...] = (
        f"{one.number:>8} {one.changed.lower()}",  # names of equal length are in the numbers' order
        None,
        one.rung,
        one.outcome.lower(),
        over["mid"] if over else None,
        None,
        None,
    )
    fields: dict[str, Value] = {"number": float(one.number), "why": one.why}
    return Line(str(one.number), cells, values, fields)


# --- sentences


def says(course: Course, found: Look, runner: "Runner | None", replaying: str) -> list[tuple[str, str]]:
    best = course.tried.get(course.best) if course.best is not None else None
    what = f"#{best.number} {speed(best.over)} the starting file's speed: {best.changed}" if best and best.over else ""
    said = [("now", replaying or now(course, found, runner)), ("best", what or "none yet")]
    if not replaying and found.spent is not None and course.budget:
        left = ", ".join(texts(Budget(**course.budget), together(list(found.spent.values())))) or "no limits"
        said.append(("left", left))
    return said


def now(course: Course, found: Look, runner: "Runner | None") -> str:
    if course.ended:
        return f"ended: {clean(str(course.ended['text'])).partition(';')[0]}"  # the log has all of it
    if runner is None or not runner.runs or runner.optimization != found.id:
        return "not ended: another process goes on with it, or it was stopped (R: go on)"
    if course.paused:
        return "paused (space: go on)"
    doing = " and ".join(f"{rung} of #{number}" for rung, number in found.waiting) or "asks what to try next"
    return f"{doing}; then it pauses" if runner.paused else doing
