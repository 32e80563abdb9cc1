"""`qrprof panels`: QR calls taken apart into the phases of their block columns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

import click
import pandas as pd
from rich.console import RenderableType
from rich.text import Text

from qrprof.profiler import units
from qrprof.profiler.coverage import Coverage, cover, describe
from qrprof.profiler.errors import Exit
from qrprof.profiler.facts import Facts, find_facts
from qrprof.profiler.load import load_run
from qrprof.profiler.panels import PanelStep, find_panels
from qrprof.profiler.panelsums import PanelCall, PanelColumn, PanelShape, block_columns, by_call, by_shape
from qrprof.profiler.phases import COPY, FUSED, GEQR2, LARFB, LARFT, ORGQR, ORMQR, PHASES, UNKNOWN
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.store import find_run
from qrprof.tui.output import (
    BLUE,
    ORANGE,
    Column,
    fancy,
    field,
    full,
    say,
    table,
    title,
    write,
    write_csv,
    write_json,
)
from qrprof.tui.ranking import run_line, short

US: Final = 1e3  # ns
GAP: Final = "gap"
BAR_CELLS: Final = 76
INK: Final = {  # a letter and a hue of Okabe and Ito a phase: a bar reads without colours too
    GEQR2: ("g", ORANGE),
    LARFT: ("t", "#CC79A7"),
    LARFB: ("b", BLUE),
    ORGQR: ("q", "#009E73"),
    ORMQR: ("m", "#009E73"),
    COPY: ("c", "#E69F00"),
    UNKNOWN: ("?", "dim"),
    GAP: (".", "dim"),
}
FUSED_INK: Final = ("f", ORANGE)


@click.command(epilog="Example: qrprof panels --top 5")
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print shapes, calls and block columns as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all block columns as CSV.")
@click.option("--top", type=click.IntRange(1), default=12, show_default=True, help="Shapes, and rows of a table.")
@click.option("--rank", "number", type=click.IntRange(0), default=0, show_default=True, help="Process of the run.")
@click.option("--probe", "probing", is_flag=True, help="Rerun its shapes on this GPU by the included kernels.")
def command(run: str | None, as_json: bool, as_csv: bool, top: int, number: int, probing: bool) -> int:
    """Take QR calls apart into the phases of their block columns.

    The calls are those of the recorded steps, timed as recorded. Phases are named after LAPACK: geqr2 factors a panel,
    larft builds T, larfb applies the block to the rest, orgqr forms Q, ormqr applies it; "gap" is when the device did
    nothing. With --probe the included kernels factor matrices of the same shapes on the GPU at hand, those of most time
    first, and say what each phase takes. RUN is a run's id, the start of one, or its folder; without it, the last run.
    """
    from qrprof.tui import probed  # which names shapes as this file does

    if as_json and as_csv:
        raise click.UsageError("give --json or --csv, not both")
    if as_csv and probing:
        raise click.UsageError("--probe prints no block columns; give it without --csv")
    gpu = probed.gpu_at_hand() if probing else None
    info, trace = load_run(find_run(Path.cwd(), run), number)
    facts = find_facts(trace, info)
    coverage, steps = cover(facts), find_panels(facts)
    if gpu:
        probed.show(info, coverage, by_shape(by_call(steps)), top, gpu, as_json=as_json)
    elif as_json:
        write_json(record(info, coverage, steps))
    elif as_csv:
        write_csv(csv_table(steps))
        if not steps:
            say("there are no QR calls in the recorded steps")
    else:
        write(page(info, facts, steps, top))
    return Exit.OK


def page(run: RunInfo, facts: Facts, steps: Sequence[PanelStep], top: int) -> list[RenderableType]:
    coverage = cover(facts)
    blocks: list[RenderableType] = [field("run", run_line(run)), field("coverage", describe(coverage))]
    shapes = by_shape(by_call(steps))
    if not shapes:
        return [*blocks, field("panels", "no QR calls in the recorded steps")]
    if timed := timed_line(run, facts):
        blocks.append(field("timed", timed))
    for shape in shapes[:top]:
        blocks += ["", *shape_blocks(shape)]
    if len(shapes) > top:
        blocks += ["", units.counted(len(shapes) - top, "other shape")]
    columns = [column for column in block_columns(steps, shapes[0]) if column.part]
    for part in dict.fromkeys(column.part for column in columns):
        own = [column for column in columns if column.part == part]
        heading = f"{part} of {label(shapes[0])}, us of the mean call:"
        blocks += ["", title(heading), columns_table(own, top)]
    return blocks


def timed_line(run: RunInfo, facts: Facts) -> str:
    """Why times differ from those of a ranking; "" where no step ran without the profiler."""
    if (step_ns := run.step_ns()) is None:
        return ""
    recorded, plain = units.time(facts.steps.host.mean_ns), units.time(step_ns)
    apart = ", gaps apart" if len(facts.work.start) else ""
    return f"under the profiler: {recorded} a step; rankings are without it: {plain}{apart}"


# --- a shape


def label(shape: PanelShape) -> str:
    size = shape.size
    inputs = "of unknown shape" if size is None else f"{size.m} x {size.n}"
    batch = f"{size.batch} x " if size and size.batch != 1 else ""
    return f"{short(shape.op)} {batch}{inputs} {shape.dtype}".strip()


def shape_blocks(shape: PanelShape) -> list[RenderableType]:
    library = f", {shape.library}" if shape.library else ""
    blocks: list[RenderableType] = [title(f"{label(shape)}{library}"), full(shape_line(shape))]
    shares = shape.shares()
    return [*blocks, stacked(shares), full(shares_line(shares))] if shares else blocks


def shape_line(shape: PanelShape) -> str:
    calls = f"{units.counted(shape.calls, 'call')} a step"
    timed = "not timed" if shape.ns is None else f"{units.time(shape.ns)} each, {units.time(shape.step_ns)} a step"
    rate = "" if shape.gflops is None else f", {units.rate(shape.gflops * 1e9)}"
    parts = "".join(f"; {part} {units.time(ns)}" for part, ns in shape.parts.items())
    note = f"; {shape.note}" if shape.note else ""
    return f"{calls}, {timed}{rate}{parts}{note}"


def ink(phase: str) -> tuple[str, str]:
    return FUSED_INK if phase.startswith(FUSED) else INK[phase]


def stacked(shares: Mapping[str, float]) -> Text:
    """Shares that sum to 1 as one bar, each a run of its letter."""
    drawn, reached, cells = Text(), 0.0, 0
    for phase, share in shares.items():
        reached += share
        letter, hue = ink(phase)
        drawn.append(letter * (round(reached * BAR_CELLS) - cells), hue if fancy() else "")
        cells = round(reached * BAR_CELLS)
    return drawn


def shares_line(shares: Mapping[str, float]) -> str:
    return "   ".join(f"{ink(phase)[0]} {phase} {units.share(share)}" for phase, share in shares.items())


# --- block columns


def phases_of(columns: Sequence[PanelColumn]) -> list[str]:
    """The phases that any of them has: in the order of PHASES, then the fused ones."""
    there = {phase for column in columns for phase in column.phases}
    return [*(phase for phase in PHASES if phase in there), *sorted(there - set(PHASES))]


def columns_table(columns: Sequence[PanelColumn], top: int) -> RenderableType:
    phases = phases_of(columns)
    heads = ["m x n", "nb", *(phase.removeprefix(FUSED) for phase in phases), GAP, "us", "GFLOP/s"]
    rows = [column_row(column, phases) for column in columns[:top]]
    if rest := columns[top:]:
        sums = [in_us(sum(column.phases.get(phase) or 0 for column in rest)) for phase in phases]
        gap, ns = sum(column.gap or 0 for column in rest), sum(column.ns for column in rest)
        rows.append([f"{len(rest)} others", "", *sums, in_us(gap), in_us(ns), ""])
    return table([Column(head, right=True) for head in heads], rows)


def column_row(column: PanelColumn, phases: Iterable[str]) -> list[str]:
    inputs = units.MISSING if column.m is None else f"{column.m} x {column.n}"
    return [
        inputs,
        units.MISSING if column.nb is None else str(column.nb),
        *(in_us(column.phases.get(phase)) for phase in phases),
        in_us(column.gap),
        in_us(column.ns),
        units.MISSING if column.gflops is None else units.digits(column.gflops),
    ]


def in_us(ns: float | None) -> str:
    return units.MISSING if ns is None else units.digits(ns / US)


# --- records


RENAMED: Final = {"start": "start_ns", "end": "end_ns", "gap": "gap_ns", "phases": "phases_ns", "parts": "parts_ns"}
PLAIN: Final = [entry.name for entry in fields(PanelStep) if entry.name != "phases"]
COLUMNS: Final = [
    *(RENAMED.get(entry, entry) for entry in PLAIN),
    *(f"{phase}_ns" for phase in PHASES),
    "fused_ns",
    "gflops",
]


def step_record(step: PanelStep) -> dict[str, Any]:
    """A block column flat, with the unit in a time's name; a phase that did not run is null."""
    phases = step.phases or {}
    fused = [ns for phase, ns in phases.items() if phase.startswith(FUSED)]
    values = [getattr(step, entry) for entry in PLAIN] + [phases.get(phase) for phase in PHASES]
    return dict(zip(COLUMNS, [*values, sum(ns or 0 for ns in fused) if fused else None, step.gflops], strict=True))


def csv_table(steps: Sequence[PanelStep]) -> pd.DataFrame:
    return pd.DataFrame([step_record(step) for step in steps], columns=COLUMNS, dtype=object)


def record(run: RunInfo, coverage: Coverage, steps: Sequence[PanelStep]) -> dict[str, Any]:
    """Times in ns as recorded; `shapes` are means of their calls."""
    calls = by_call(steps)
    return {
        "run": run.id,
        "coverage": asdict(coverage),
        "shapes": [sum_record(shape) | {"shares": shape.shares()} for shape in by_shape(calls)],
        "calls": [sum_record(call) for call in calls],
        "block_columns": [step_record(step) for step in steps],
    }


def sum_record(found: PanelShape | PanelCall) -> dict[str, Any]:
    """A call or a shape, with the unit in a time's name."""
    own = {RENAMED.get(column, column): value for column, value in asdict(found).items()}
    return own | {"ns": found.ns, "gflops": found.gflops}
