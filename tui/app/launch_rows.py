"""What the launches view lists: as `qrprof launches`, and beside it another run's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from qrprof.profiler import units
from qrprof.profiler.coverage import describe
from qrprof.profiler.launches import Launches, per_step
from qrprof.tui.app.session import Session
from qrprof.tui.app.widgets.grid import Head, Line, Value
from qrprof.tui.commands.launches import US, graph_line, launches_line, row_of, short_line, total_of
from qrprof.tui.ranking import MS, short

LABELS: Final = {"op": "op", "what": "what is launched"}  # what the rows may be
HEADS: Final = (  # as the cells of `row_of`
    Head("launches", "launches", adds=True),
    Head("api", "API ms", adds=True),
    Head("empty", "empty", adds=True),
    Head("empty_us", "wait us"),
    Head("full", "full", spare=True, adds=True),
    Head("full_us", "wait us", spare=True),
    Head("depth", "depth", spare=True),
    Head("short", "<10 us", spare=True, adds=True),
)
DELTA: Final = Head("delta", "B - A ms", adds=True)  # of the API's time
BESIDE: Final = 3  # cells before it


@dataclass(frozen=True, eq=False)
class Launched:
    """What is said of all launches, and the rows by op and by what is launched."""

    says: tuple[tuple[str, str], ...]  # label, sentence
    heads: Mapping[str, tuple[Head, ...]]
    lines: Mapping[str, tuple[Line, ...]]


def launched(session: Session, other: Session | None) -> Launched:
    found = session.launches
    coverage = ("coverage", describe(found.coverage))
    if found.calls.empty:
        says = (("launches", f"there are none to show: {found.withheld}"), coverage)
        return Launched(says, dict.fromkeys(LABELS, ()), dict.fromkeys(LABELS, ()))
    total, before = total_of(found), launches_of(other) if other else None
    says = (
        ("launches", launches_line(found, total)),
        ("graph", graph_line(found)),
        ("short", short_line(total)),
        coverage,
        *((("compared", compared_line(other, before)),) if other else ()),
    )
    heads = (*HEADS[: BESIDE - 1], *((DELTA,) if before else ()), *HEADS[BESIDE - 1 :])
    return Launched(
        says=says,
        heads={by: (Head(by, label), *heads) for by, label in LABELS.items()},
        lines={by: lines(found, before, by) for by in LABELS},
    )


def launches_of(session: Session) -> Launches | None:
    """None where there are none."""
    with session.lock:
        return None if session.launches.calls.empty else session.launches


def compared_line(other: Session, before: Launches | None) -> str:
    name = other.folder.name
    return f"A is {name}; the difference is of recorded times" if before else f"{name} has no launches to compare with"


def lines(found: Launches, before: Launches | None, by: str) -> tuple[Line, ...]:
    was: Mapping[Any, float] | None = None
    if before:
        sums = per_step(before.calls, by)
        was = dict(zip(sums[by], sums["api_ns"], strict=True))
    return tuple(line(str(sums[by]), sums, was) for sums in per_step(found.calls, by).to_dict("records"))


def line(what: str, sums: Mapping[Any, Any], was: Mapping[Any, float] | None) -> Line:
    """`was`: API ns of each row in the other run."""
    cells: list[str] = [short(what), *map(str, row_of(what, dict(sums))[1:])]
    values: list[Value] = [
        short(what),
        sums["launches"],
        sums["api_ns"] / MS,
        sums["empty"],
        mean(sums["empty_ns"], sums["empty"]),
        sums["full"],
        mean(sums["full_ns"], sums["full"]),
        sums["depth"],
        sums["short"],
    ]
    if was is not None:
        delta = (sums["api_ns"] - was.get(what, 0.0)) / MS
        cells.insert(BESIDE, units.signed(delta))
        values.insert(BESIDE, delta)
    return Line(what, tuple(cells), tuple(values))


def mean(ns: float, count: float) -> float | None:
    return ns / count / US if count else None
