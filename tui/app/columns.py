"""The columns of the bottlenecks table: what stands in them, what they are sorted by, and which fit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len

from qrprof.profiler import units
from qrprof.tui.app.filters import Record
from qrprof.tui.app.glyphs import Glyphs

if TYPE_CHECKING:
    from qrprof.tui.app.bottleneck_rows import Row

MS: Final = 1e6  # ns
BAR_CELLS: Final = 6
NAME: Final = "what"
NARROWEST: Final = 22  # cells of a name
GAP: Final = 1  # cells after a column
DROPPED: Final = ("basis", "bar", "calls", "ceiling", "change")  # in this order where there is no room


@dataclass(frozen=True)
class Extra:
    """What a row may be shown with."""

    glyphs: Glyphs
    then_ns: Mapping[str, float]


@dataclass(frozen=True)
class Column:
    id: str
    header: str
    cell: "Callable[[Row, Extra], str]"
    sort: "Callable[[Row, Extra], float | str | None] | None" = None  # None: not to be sorted by
    right: bool = True


def in_ms(ns: float | None) -> str:
    return units.MISSING if ns is None else units.digits(ns / MS)


def signed_ms(ns: float | None) -> str:
    return in_ms(ns) if ns is None or ns <= 0 else f"+{in_ms(ns)}"


WHAT: Final = Column(NAME, "what", lambda row, _: row.label, lambda row, _: row.label.lower(), right=False)
BASE: Final = (
    WHAT,
    Column("ms", "ms/step", lambda row, _: in_ms(row.ns), lambda row, _: row.ns),
    Column("share", "share", lambda row, _: units.share(row.share), lambda row, _: row.share),
    Column("bar", "", lambda row, extra: extra.glyphs.bar(row.share, BAR_CELLS), right=False),
    Column("calls", "calls", lambda row, _: units.calls(row.calls), lambda row, _: row.calls),
    Column("ceiling", "ceiling", lambda row, _: units.ratio(row.ceiling_x), lambda row, _: row.ceiling_x),
    Column("gain", "gain, ms", lambda row, _: row.gain, lambda row, _: row.expected_ns),
    Column("basis", "basis", lambda row, _: row.basis, right=False),
)
THEN: Final = Column(
    "then",
    "then, ms",
    lambda row, extra: in_ms(extra.then_ns.get(row.key)),
    lambda row, extra: extra.then_ns.get(row.key),
)
DELTA: Final = (
    Column("delta", "B - A", lambda row, _: signed_ms(row.delta_ns), lambda row, _: row.delta_ns),
    Column("change", "change", lambda row, _: row.change or units.MISSING, right=False),
)
BEFORE: Final = "share"  # THEN and DELTA stand before it


def columns_of(*, what_if: bool, compared: bool) -> tuple[Column, ...]:
    further = (*((THEN,) if what_if else ()), *(DELTA if compared else ()))
    place = next(index for index, column in enumerate(BASE) if column.id == BEFORE)
    return (*BASE[:place], *further, *BASE[place:])


def ordered(rows: "Sequence[Row]", column: Column, extra: Extra, *, descending: bool) -> "list[Row]":
    """The rows by a column, those without a value last; ties by key."""
    by = column.sort or (lambda row, _: row.label)
    valued = sorted((row for row in rows if by(row, extra) is not None), key=lambda row: row.key)
    none = sorted((row for row in rows if by(row, extra) is None), key=lambda row: row.key)
    return [*sorted(valued, key=lambda row: by(row, extra) or 0, reverse=descending), *none]


def fitting(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> dict[str, int]:
    """The columns that have room in `width`, and how wide they are; the name takes what is left."""
    wide = {
        column.id: max(cell_len(text) for text in (column.header, *(row[place] for row in cells)))
        for place, column in enumerate(columns)
    }
    longest = wide.pop(NAME)
    for one in DROPPED:
        if sum(wide.values()) + GAP * len(wide) + min(longest, NARROWEST) <= width:
            break
        wide.pop(one, None)
    return {NAME: max(min(longest, width - sum(wide.values()) - GAP * len(wide)), 1)} | wide


def padded(text: str, width: int, *, right: bool) -> str:
    """`text` in `width` cells and the gap after them."""
    space = " " * (width - cell_len(text))
    return (space + text if right else text + space) + " " * GAP


def fields(row: "Row") -> Record:
    """What a filter may ask for: times in ms, shares in per cent."""
    return {
        "name": row.label,
        "key": row.key,
        "kind": row.kind,
        "basis": row.basis,
        "change": row.change,
        "share": None if row.share is None else 100 * row.share,
        "ms": None if row.ns is None else row.ns / MS,
        "calls": row.calls,
        "delta": None if row.delta_ns is None else row.delta_ns / MS,
    }


def sums(columns: Sequence[Column], rows: "Sequence[Row]", extra: Extra) -> list[str]:
    """The cells of the row that stands for all these. A fix's time lies in other rows."""
    times = [row.ns for row in rows if row.ns is not None and row.kind != "fix"]
    then = [extra.then_ns[row.key] for row in rows if row.key in extra.then_ns]
    shares = [row.share for row in rows if row.share is not None]
    known = {
        NAME: f"{len(rows)} others",
        "ms": in_ms(sum(times)),
        "share": units.share(sum(shares) if shares else None),
        "then": in_ms(sum(then) if then else None),
        "delta": signed_ms(sum(row.delta_ns for row in rows if row.delta_ns is not None)),
    }
    return [known.get(column.id, "") for column in columns]
