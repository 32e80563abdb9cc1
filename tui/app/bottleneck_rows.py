"""What the bottlenecks view lists: the ranking of a run, each row with its details, and beside it another run's."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from qrprof.planner.targets import Target, expected_gain
from qrprof.profiler import units
from qrprof.profiler.diff import changes, diff
from qrprof.tui.app.session import Session
from qrprof.tui.commands.diff import steps_line
from qrprof.tui.commands.rank import gain, label, noise_line
from qrprof.tui.commands.show import BASIS, gain_line, share_line, time_line
from qrprof.tui.ranking import Ranking, notes, short

PARTS: Final = 8  # of a row, in its details

Pairs = tuple[tuple[str, str], ...]  # of a label and a sentence


@dataclass(frozen=True)
class Row:
    """One thing that takes time. Times are ns of a mean step; None is not known, or has no meaning."""

    key: str
    label: str
    kind: str  # "op", "gap", "fix", or "gone": only the other run has it
    ns: float | None
    share: float | None  # of the step
    calls: float | None
    ceiling_x: float | None
    expected_ns: float  # by which the ranking is ordered
    gain: str
    basis: str
    advice: str
    details: Pairs
    parts: tuple[str, ...]
    place: str | None  # file:line
    a_ns: float | None = None  # in the other run
    delta_ns: float | None = None  # more than in the other run
    change: str = ""


@dataclass(frozen=True)
class Ranked:
    rows: tuple[Row, ...]  # best first
    total_ns: float
    total_share: float | None
    noise: str
    notes: tuple[str, ...]
    compared: str | None = None  # the steps of the two runs, or why they are not compared
    delta_ns: float | None = None  # of the steps


def ranked(session: Session, other: Session | None) -> Ranked:
    """The rows of a run, those that another has and this has not at the end."""
    ranking = session.ranking
    known = parts(ranking)
    rows = tuple(row(ranking, target, *known.get(target.key, ((), None))) for target in ranking.targets)
    shares = [one.share for one in rows if one.share is not None]
    found = Ranked(
        rows=rows,
        total_ns=sum(one.ns for one in rows if one.ns is not None and one.kind != "fix"),
        total_share=sum(shares) if shares else None,
        noise=noise_line(ranking),
        notes=tuple(notes(ranking)),
    )
    return compared(found, session, other) if other else found


def row(ranking: Ranking, target: Target, parts: tuple[str, ...], place: str | None) -> Row:
    return Row(
        key=target.key,
        label=label(target),
        kind=target.kind,
        ns=target.ns,
        share=target.share,
        calls=target.calls,
        ceiling_x=target.ceiling_x,
        expected_ns=expected_gain(target),
        gain=gain(target),
        basis=target.gain_ns.basis.lower() if target.gain_ns else units.MISSING,
        advice=target.advice,
        details=details(ranking, target),
        parts=parts,
        place=place,
    )


def details(ranking: Ranking, target: Target) -> Pairs:
    """What `qrprof show` says of the target."""
    found = [("time", time_line(ranking, target))]
    if target.gain_ns and target.achievable_ns:
        found += [("ceiling", units.ratio(target.ceiling_x)), ("gain", gain_line(target))]
        found += [("by share", line)] if (line := share_line(ranking, target)) else []
        found += [("basis", BASIS[target.gain_ns.basis])]
    if target.dont_bother:
        found += [("in noise", target.dont_bother)]
    return (*found, ("advice", target.advice), ("why", target.why))


def parts(ranking: Ranking) -> Mapping[str, tuple[tuple[str, ...], str | None]]:
    """By key the lines of what it is made of, the largest first, and a source line where one is known."""
    rows, cwd = ranking.partition.rows, ranking.run.cwd
    columns = rows[["key", "ns", "kind", "op", "phase", "shapes", "where", "kernel"]]
    lines: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    for key, ns, kind, op, phase, shapes, where, kernel in columns.itertuples(index=False, name=None):
        named = (op if kind == "gap" else "", phase, shapes.strip(","), kernel, where)
        listed = lines.setdefault(key, [])
        if len(listed) < PARTS:
            listed.append(" ".join([units.time(ns), *(short(text) for text in named if text)]))
        if is_place(where):
            places.setdefault(key, str(Path(cwd) / where))
    return {key: (tuple(listed), places.get(key)) for key, listed in lines.items()}


def is_place(where: str) -> bool:
    """Whether it is file:line, and not the name of an annotation."""
    path, _, line = where.rpartition(":")
    return bool(path) and line.isdigit() and path.endswith(".py")


# --- against another run


def compared(found: Ranked, session: Session, other: Session) -> Ranked:
    """`found` with what each row takes more than in `other`."""
    with other.lock:
        differs = diff(other.side, session.side)
    name = other.folder.name
    if differs.withheld:
        return replace(found, compared=f"not compared with {name}: {differs.withheld}")
    sums = differs.rows.groupby("key")[["a_ns", "b_ns"]].sum()
    a_ns, b_ns = sums["a_ns"], sums["b_ns"]
    words = changes(b_ns - a_ns, a_ns == 0, b_ns == 0, differs.floor_ns)
    known = {str(key): (a, b, word) for (key, a, b), word in zip(sums.itertuples(name=None), words, strict=True)}
    here = {one.key for one in found.rows}
    rows = [*found.rows, *(missing(key) for key in known if key not in here)]
    return replace(
        found,
        rows=tuple(beside(one, *known[one.key]) if one.key in known else one for one in rows),
        compared=f"A is {name}; {steps_line(differs)}",
        delta_ns=differs.b_ns - differs.a_ns,
    )


def beside(one: Row, a_ns: float, b_ns: float, change: str) -> Row:
    return replace(one, a_ns=a_ns, delta_ns=b_ns - a_ns, change=change)


def missing(key: str) -> Row:
    """A row for what only the other run has."""
    said, none = (("gone", "only the other run has it"),), units.MISSING
    return Row(key, short(key), "gone", None, None, None, None, 0.0, none, none, "", said, (), None)
