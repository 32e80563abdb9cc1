"""`qrprof diff`: what one run's step takes more or less time for than another's."""

import dataclasses
import math
from pathlib import Path
from typing import Any, Final

import click
import pandas as pd
from rich.console import RenderableType

from qrprof.profiler import units
from qrprof.profiler.coverage import describe
from qrprof.profiler.diff import ARROW, BY_ORDER, STILL, Diff, Side, diff, regressed, side
from qrprof.profiler.errors import Exit
from qrprof.profiler.events import CAUSE_LABELS
from qrprof.profiler.load import load_run
from qrprof.profiler.store import find_run
from qrprof.tui.commands.rank import in_ms
from qrprof.tui.output import BLUE, ORANGE, Cell, Column, field, name, say, table, write, write_csv, write_json
from qrprof.tui.ranking import run_line, short, to_ms

WIDTH: Final = 10  # of the labels
COLUMNS: Final = (
    Column("what", wraps=True),
    Column("phase"),
    Column("calls", right=True),
    Column("A, ms", right=True),
    Column("B, ms", right=True),
    Column("B - A", right=True),
    Column("speedup", right=True),
    Column("change"),
)


class Percentage(click.ParamType):  # type: ignore[type-arg]  # generic only for type checkers
    """`5%` or `0.05`."""

    name = "percentage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        try:
            fraction = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            fraction = math.nan
        if not 0 <= fraction < (math.inf if text.endswith("%") else 1):
            self.fail(f"{text!r} is no share of a step: give 5% or 0.05", param, ctx)
        return fraction


@click.command(epilog="Example: qrprof diff 20260131-1200 20260201-0900 --fail-over 5%")
@click.argument("a")
@click.argument("b")
@click.option("--json", "as_json", is_flag=True, help="Print all rows as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all rows as CSV, times in ns.")
@click.option("--top", type=click.IntRange(1), default=12, show_default=True, help="Rows of the table.")
@click.option(
    "--fail-over", "limit", type=Percentage(), help="End with 1 where B's step is slower by more, or not comparable."
)
def command(a: str, b: str, as_json: bool, as_csv: bool, top: int, limit: float | None) -> int:
    """Compare two runs: what takes more or less time.

    A and B are runs' ids, starts of them, or folders. "speedup" is A over B: above 1, B is faster. A difference below
    the noise of the two steps is "no change". Rows are matched by op and shapes; "by order": the shapes differ, and the
    op's calls are matched in their order.
    """
    if as_json and as_csv:
        raise click.UsageError("give --json or --csv, not both")
    sides = load_side(a), load_side(b)
    found = diff(*sides)
    if as_json:
        write_json(record(sides, found))
    elif as_csv:
        write_csv(found.rows)
    else:
        write(page(sides, found, top))
    return Exit.OK if limit is None else gate(found, limit)


def load_side(run: str) -> Side:
    info, trace = load_run(find_run(Path.cwd(), run))
    return side(trace, info)


def gate(found: Diff, limit: float) -> Exit:
    """Say how the comparison with the limit ends; what cannot be compared does not pass."""
    if found.withheld:
        say(f"failed: the runs cannot be compared: {found.withheld}")
        return Exit.FAILED
    failed = regressed(found, limit)
    floor = "the noise is unknown" if found.floor_ns is None else f"noise {units.time(found.floor_ns)}"
    say(f"{'failed' if failed else 'passed'}: {steps_line(found)}; limit {units.share(limit)}, {floor}")
    return Exit.FAILED if failed else Exit.OK


# --- the page


def page(sides: tuple[Side, Side], found: Diff, top: int) -> list[RenderableType]:
    named = list(zip("AB", sides, strict=True))
    blocks: list[RenderableType] = [
        *(field(f"run {letter}", run_line(one.run), WIDTH) for letter, one in named),
        *(field(f"coverage {letter}", describe(one.parts.coverage), WIDTH) for letter, one in named),
        field("step", steps_line(found), WIDTH),
        field("noise", noise_line(found), WIDTH),
        field("alike", alike_line(found), WIDTH),
    ]
    if not found.withheld:
        blocks += ["", rows_table(found, top)]
    if remarks := notes(sides, found):
        blocks += ["", *(field("note", remark) for remark in remarks)]
    return blocks


def steps_line(found: Diff) -> str:
    a_ns, b_ns = found.steps_ns
    delta = b_ns - a_ns
    line = f"A {units.time(a_ns)}, B {units.time(b_ns)}"
    if found.unprofiled_ns is None:
        line += " (as recorded)"
    if abs(delta) <= (found.floor_ns or 0.0):
        return f"{line}: no change" + (" beyond the noise" if found.floor_ns else "")
    word = "slower" if delta > 0 else "faster"
    share = units.share(abs(delta) / a_ns)
    return f"{line}: B is {units.time(abs(delta))} {word}, {share} of A; speedup {units.ratio(a_ns / b_ns)}"


def noise_line(found: Diff) -> str:
    if found.floor_ns is None:
        return "not measured: too few steps; nothing says which differences are changes"
    return f"{units.time(found.floor_ns)} ({found.noise}): a smaller difference is no change"


def alike_line(found: Diff) -> str:
    if found.withheld:
        return f"not compared: {found.withheld}"
    return f"{units.share(found.comparability)} of the time in ops is in ops and shapes that both call equally often"


def rows_table(found: Diff, top: int) -> RenderableType:
    """The rows that changed, and the others by their sums."""
    changed = found.rows[found.rows["change"] != STILL]
    still = found.rows[found.rows["change"] == STILL]
    rows = [line for values in changed[:top].to_dict("records") for line in lines(values)]
    for what, frame in ((f"{len(changed) - top} others", changed[top:]), (f"{len(still)} without change", still)):
        if len(frame):
            rows.append(sums(what, frame))
    return table(COLUMNS, rows, total=sums("total", found.rows))


def lines(values: dict[Any, Any]) -> list[list[Cell]]:
    """A row; B's shapes, where they are not A's, have a line of their own: both would be cut out of a narrow one."""
    if values["matched"] != BY_ORDER:
        return [row(values)]
    others = tensors(values["shapes"].partition(ARROW)[2])
    return [row(values), [name(f"-> {others}", BLUE), *[""] * (len(COLUMNS) - 2), f"by {BY_ORDER}"]]


def row(values: dict[Any, Any]) -> list[Cell]:
    speedup = values["speedup"]
    return [
        name(label(values), ORANGE if values["kind"] == "gap" else BLUE),
        values["phase"] or units.MISSING,
        calls(values["calls_a"], values["calls_b"]),
        in_ms(values["a_ns"]),
        in_ms(values["b_ns"]),
        in_ms(values["delta_ns"]),
        units.ratio(None if pd.isna(speedup) else speedup),
        values["change"] or units.MISSING,
    ]


def label(values: dict[Any, Any]) -> str:
    if values["kind"] == "gap":
        return f"{CAUSE_LABELS[values['key'].removeprefix('gap:')]} (gap)"
    shapes = values["shapes"].partition(ARROW)[0]
    return " ".join(filter(None, [short(values["key"]), values["kernel"], tensors(shapes)]))


def tensors(shapes: str) -> str:
    """Shapes without those of arguments that have none."""
    return shapes.replace(",[]", "")


def calls(a: float, b: float) -> str:
    one, other = (units.calls(None if math.isnan(count) else count) for count in (a, b))
    return one if one == other else f"{one}/{other}"


def sums(what: str, rows: pd.DataFrame) -> list[Cell]:
    a_ns, b_ns = float(rows["a_ns"].sum()), float(rows["b_ns"].sum())
    return [what, "", "", in_ms(a_ns), in_ms(b_ns), in_ms(b_ns - a_ns), "", ""]


def notes(sides: tuple[Side, Side], found: Diff) -> list[str]:
    """What a reader of the figures must know, a sentence each."""
    a, b = sides
    remarks = []
    if not (found.calibrated or found.withheld):
        reasons = [
            f"{letter}: {one.parts.withheld}" for letter, one in zip("AB", sides, strict=True) if one.parts.withheld
        ]
        reason = "; ".join(reasons) or "a run has no unprofiled steps"
        remarks.append(f"rows are as recorded, with the profiler's own cost: {reason}")
    if ordered := int((found.rows["matched"] == BY_ORDER).sum()):
        remarks.append(
            f"{ordered} of {len(found.rows)} rows are matched by order: A and B call the op with different shapes, so "
            "its calls are paired as they come in a step"
        )
    for what, one, other in (
        ("the device", device(a), device(b)),
        *((package, a.run.versions.get(package), b.run.versions.get(package)) for package in ("torch", "cuda", "hip")),
        ("the number of ranks", a.run.world_size, b.run.world_size),
        ("the number of threads", a.run.threads, b.run.threads),
    ):
        if one != other:
            remarks.append(f"{what} differs: {one or 'unknown'} in A, {other or 'unknown'} in B")
    return remarks


def device(one: Side) -> str:
    return next((device.name for device in one.run.devices if (device.kind == "cpu") != one.parts.on_device), "")


# --- the record


def record(sides: tuple[Side, Side], found: Diff) -> dict[str, Any]:
    """Times in ms of a mean step. `steps_ms` are A's and B's; what the rows sum to is `rows_ms`."""
    return {
        **{letter: run_record(one) for letter, one in zip("ab", sides, strict=True)},
        "steps_ms": [to_ms(ns) for ns in found.steps_ns],
        "rows_ms": [to_ms(found.a_ns), to_ms(found.b_ns)],
        "calibrated": found.calibrated,
        "noise": None if found.floor_ns is None else {"name": found.noise, "ms": to_ms(found.floor_ns)},
        "comparability": found.comparability,
        "withheld": found.withheld,
        "rows": [row_record(values) for values in found.rows.to_dict("records")],
        "notes": notes(sides, found),
    }


def run_record(one: Side) -> dict[str, Any]:
    return {"run": one.run.id, "coverage": dataclasses.asdict(one.parts.coverage)}


def row_record(values: dict[Any, Any]) -> dict[str, Any]:
    kept = {column: values[column] for column in ("key", "kind", "shapes", "dtypes", "phase", "kernel")}
    return {
        **kept,
        "matched": values["matched"] or None,
        "calls": [values["calls_a"], values["calls_b"]],
        "ms": [to_ms(values["a_ns"]), to_ms(values["b_ns"])],
        "delta_ms": to_ms(values["delta_ns"]),
        "speedup": values["speedup"],
        "change": values["change"] or None,
    }
