"""What the panels view lists: the shapes of a run's QR calls, and the block columns of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from qrprof.profiler import units
from qrprof.profiler.coverage import Verdict, describe
from qrprof.profiler.panels import PanelStep
from qrprof.profiler.panelsums import PanelColumn, PanelShape, block_columns, by_call, by_shape
from qrprof.profiler.phases import FUSED
from qrprof.tui.app.session import Session
from qrprof.tui.app.widgets.bars import Part
from qrprof.tui.app.widgets.grid import Head, Line, Value
from qrprof.tui.commands.panels import GAP, in_us, ink, label, phases_of, shape_line, shares_line, timed_line
from qrprof.tui.ranking import MS

SHAPES: Final = (
    Head("shape", "QR call"),
    Head("calls", "calls"),
    Head("ms", "ms/step", adds=True),
    Head("batch", "batch"),
    Head("each", "us each", spare=True),
    Head("rate", "GFLOP/s", spare=True),
)
DELTA: Final = Head("delta", "B - A ms", adds=True)
BESIDE: Final = 3  # cells before it
NONE: Final = "no QR calls in the recorded steps: nothing called linalg.qr, geqrf, householder_product or ormqr"


@dataclass(frozen=True, eq=False)
class Opened:
    """One shape: what is said of it, and its block columns; without any, a sentence says why."""

    op: str
    says: tuple[tuple[str, str], ...]
    heads: tuple[Head, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, eq=False)
class Panels:
    says: tuple[tuple[str, str], ...]  # label, sentence
    heads: tuple[Head, ...]
    lines: tuple[Line, ...]
    opened: Mapping[str, Opened]  # by the key of a line


def panels(session: Session, other: Session | None) -> Panels:
    steps = session.panels
    shapes = by_shape(by_call(steps))
    says, coverage = [] if shapes else [("panels", NONE)], session.launches.coverage
    if coverage.verdict is not Verdict.TRUSTED:
        says.append(("coverage", describe(coverage)))
    if shapes and (timed := timed_line(session.run, session.facts)):
        says.append(("timed", timed))
    before = step_times(other) if other else None
    if other:
        says.append(("compared", f"A is {other.folder.name}; the difference is of recorded times"))
    heads = (*SHAPES[:BESIDE], *((DELTA,) if before is not None else ()), *SHAPES[BESIDE:])
    keys = [f"{place}" for place in range(len(shapes))]
    return Panels(
        says=tuple(says),
        heads=heads,
        lines=tuple(shape_row(key, shape, before) for key, shape in zip(keys, shapes, strict=True)),
        opened={key: opened(steps, shape) for key, shape in zip(keys, shapes, strict=True)},
    )


def step_times(session: Session) -> Mapping[tuple[str, str, str], float]:
    """ns of a mean step by op, shapes and dtype, however it was done."""
    found: dict[tuple[str, str, str], float] = {}
    with session.lock:
        for shape in by_shape(by_call(session.panels)):
            found[same(shape)] = found.get(same(shape), 0.0) + (shape.step_ns or 0.0)
    return found


def same(shape: PanelShape) -> tuple[str, str, str]:
    return shape.op, shape.shapes, shape.dtype


def shape_row(key: str, shape: PanelShape, before: Mapping[tuple[str, str, str], float] | None) -> Line:
    step = None if shape.step_ns is None else shape.step_ns / MS
    batch = shape.size.batch if shape.size else None
    values: list[Value] = [label(shape), shape.calls, step, batch, shape.ns, shape.gflops]
    cells = [
        label(shape),
        units.calls(shape.calls),
        units.MISSING if step is None else units.digits(step),
        units.MISSING if batch is None else str(batch),
        in_us(shape.ns),
        units.MISSING if shape.gflops is None else units.digits(shape.gflops),
    ]
    if before is not None:
        delta = None if step is None else step - before.get(same(shape), 0.0) / MS
        cells.insert(BESIDE, units.MISSING if delta is None else units.signed(delta))
        values.insert(BESIDE, delta)
    return Line(key, tuple(cells), tuple(values))


# --- block columns


def opened(steps: Sequence[PanelStep], shape: PanelShape) -> Opened:
    columns = [column for column in block_columns(steps, shape) if column.part]
    shares = shape.shares()
    says = [(shape.library or "QR", f"{label(shape)}: {shape_line(shape)}")]
    says += [("phases", f"{shares_line(shares)}; times below in us of the mean call")] if shares else []
    if not columns:
        return Opened(shape.op, tuple(says), (), ())
    phases = phases_of(columns)
    heads = (
        Head("column", "block column", sorts=False),
        Head("nb", "nb"),
        Head("us", "us"),
        Head("rate", "GFLOP/s"),
        Head("bar", "", sorts=False, bar=True),
        Head(GAP, "gap", spare=True),
        *(Head(phase, phase.removeprefix(FUSED), spare=True) for phase in phases),
    )
    longest = max(column.ns for column in columns)
    return Opened(
        shape.op,
        tuple(says),
        heads,
        tuple(column_row(place, column, phases, longest) for place, column in enumerate(columns)),
    )


def column_row(place: int, column: PanelColumn, phases: Sequence[str], longest: float) -> Line:
    size = units.MISSING if column.m is None else f"{column.m} x {column.n}"
    name = f"{column.part} {size}"
    times = [column.gap, *(column.phases.get(phase) for phase in phases)]
    return Line(
        key=str(place),
        cells=(
            name,
            units.MISSING if column.nb is None else str(column.nb),
            in_us(column.ns),
            units.MISSING if column.gflops is None else units.digits(column.gflops),
            bar(column, phases, longest),
            *map(in_us, times),
        ),
        values=(name, column.nb, column.ns, column.gflops, None, *times),
    )


def bar(column: PanelColumn, phases: Sequence[str], longest: float) -> tuple[Part, ...]:
    """Its phases and the gap; as long as its time is, beside that of the longest."""
    times = [(phase, column.phases.get(phase)) for phase in phases] + [(GAP, column.gap)]
    return tuple(Part(*ink(phase), ns / longest) for phase, ns in times if ns)
