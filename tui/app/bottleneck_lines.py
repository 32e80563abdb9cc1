"""The bottlenecks as lines of a grid: what stands in the columns, and what they are sorted and filtered by."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from qrprof.profiler import units
from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.widgets.grid import Head, Line, Value

if TYPE_CHECKING:
    from qrprof.tui.app.bottleneck_rows import Row

MS: Final = 1e6  # ns
PER_CENT: Final = 100
BAR_CELLS: Final = 6


def per_cent(value: float) -> str:
    return units.share(value / PER_CENT)


GAIN: Final = "gain"
WHAT: Final = (Head("what", "what"), Head("ms", "ms/step", adds=True))
THEN: Final = Head("then", "then, ms", adds=True)
DELTA: Final = (Head("delta", "B - A", adds=True, form=units.signed), Head("change", "change", spare=1, sorts=False))
REST: Final = (
    Head("share", "share", adds=True, form=per_cent),
    Head("bar", "", spare=3, sorts=False),
    Head("calls", "calls", spare=2),
    Head("ceiling", "ceiling", spare=1),
    Head(GAIN, "gain, ms"),
    Head("basis", "basis", spare=4, sorts=False),
)


def heads(*, what_if: bool, compared: bool) -> tuple[Head, ...]:
    return (*WHAT, *([THEN] if what_if else []), *(DELTA if compared else ()), *REST)


def line(row: "Row", columns: tuple[Head, ...], then_ns: Mapping[str, float], glyphs: Glyphs) -> Line:
    """Times in ms, shares in per cent."""
    times = (row.ns, then_ns.get(row.key), row.delta_ns, row.expected_ns)
    ms, then, delta, gain = (None if ns is None else ns / MS for ns in times)
    share = None if row.share is None else PER_CENT * row.share
    values: dict[str, Value] = {
        "what": row.label.lower(),
        "ms": ms,
        "then": then,
        "delta": delta,
        "share": share,
        "calls": row.calls,
        "ceiling": row.ceiling_x,
        GAIN: gain,
    }
    texts = {
        "what": row.label,
        "ms": number(ms),
        "then": number(then),
        "delta": units.MISSING if delta is None else units.signed(delta),
        "change": row.change or units.MISSING,
        "share": units.share(row.share),
        "bar": f"{glyphs.bar(row.share, BAR_CELLS):<{BAR_CELLS}}",
        "calls": units.calls(row.calls),
        "ceiling": units.ratio(row.ceiling_x),
        GAIN: row.gain,
        "basis": row.basis,
    }
    return Line(
        key=row.key,
        cells=tuple(texts[head.id] for head in columns),
        values=tuple(values.get(head.id) for head in columns),
        fields={"key": row.key, "kind": row.kind, "basis": row.basis, "change": row.change},
        adds=row.kind != "fix",  # whose time lies in other rows
    )


def number(value: float | None) -> str:
    return units.MISSING if value is None else units.digits(value)
