"""`qrprof path`: the critical path of a run, from the replay of its dependencies."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
import pandas as pd
from rich.console import RenderableType

from qrprof.planner.replay.model import Model, model_of
from qrprof.planner.replay.path import CriticalPath, by_bound, by_op, find_path
from qrprof.profiler import units
from qrprof.profiler.coverage import cover, describe
from qrprof.profiler.errors import Exit
from qrprof.profiler.facts import find_facts
from qrprof.profiler.load import load_run
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.store import find_run
from qrprof.tui.output import Cell, Column, bar, field, name, say, table, title, write, write_csv, write_json
from qrprof.tui.ranking import MS, replay_line, replay_record, run_line, short, to_ms

US: Final = 1e3  # ns
RENAMED: Final = {"start": "start_ns", "end": "end_ns"}
HIDDEN: Final = ["row", "item"]  # places that only the code knows
OUTSIDE: Final = "outside ops"
PLACES: Final = ["thread", "device", "stream"]

CATEGORIES: Final = (
    Column("bound by", wraps=True),
    Column("ms/step", right=True),
    Column("share", right=True),
    Column(""),
    Column("stretches", right=True),
)
OPS: Final = (
    Column("op", wraps=True),
    Column("bound by"),
    Column("ms/step", right=True),
    Column("share", right=True),
    Column(""),
)
TIMES: Final = (
    Column("step", right=True),
    Column("at ms", right=True),
    Column("us", right=True),
    Column("what"),
    Column("event", wraps=True),
    Column("on", wraps=True),
)


@click.command(epilog="Example: qrprof path --by time --top 20")
@click.argument("run", required=False)
@click.option("--by", type=click.Choice(["category", "op", "time"]), help="Print one table only.")
@click.option("--json", "as_json", is_flag=True, help="Print all tables and stretches as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the table of --by as CSV; all stretches without it.")
@click.option("--top", type=click.IntRange(1), default=12, show_default=True, help="Rows of a table.")
@click.option("--rank", "number", type=click.IntRange(0), default=0, show_default=True, help="Process of the run.")
def command(run: str | None, by: str | None, as_json: bool, as_csv: bool, top: int, number: int) -> int:
    """Show the critical path: what the step waits for.

    One thing after the other, it runs from the last step boundary back to the first, over what each moment waited for
    last, in a replay of the trace that is calibrated to the unprofiled step. Its stretches sum to the mean step; what
    is not on it makes the step no faster. RUN is a run's id, the start of one, or its folder; without it, the last run.
    """
    if as_json and as_csv:
        raise click.UsageError("give --json or --csv, not both")
    info, trace = load_run(find_run(Path.cwd(), run), number)
    model = model_of(find_facts(trace, info), info)
    path = None if model.withheld else find_path(model)
    if as_json:
        write_json(record(info, model, path))
    elif path is None:
        say(f"the critical path is withheld: {model.withheld}")
    elif as_csv:
        write_csv(csv_table(path, by or "time"))
    else:
        write(page(info, model, path, by, top))
    return Exit.OK if path else Exit.FAILED


def page(run: RunInfo, model: Model, path: CriticalPath, by: str | None, top: int) -> list[RenderableType]:
    blocks: list[RenderableType] = [
        field("run", run_line(run)),
        field("coverage", describe(cover(model.graph.facts))),
        field("step", step_line(run, model, path)),
        field("replay", replay_line(model)),
    ]
    if by in (None, "category"):
        blocks += ["", categories_table(path)]
    if by in (None, "op"):
        blocks += ["", ops_table(path, top)]
    if by == "time":
        blocks += ["", title("The longest stretches in order of time:"), times_table(path, top)]
    return blocks


def step_line(run: RunInfo, model: Model, path: CriticalPath) -> str:
    recorded = f"{units.time(model.recorded_ns)} recorded"
    length = units.time(path.step_ns)
    if run.step_ns() is None:
        return f"{recorded}, never timed without the profiler; the path of {length} is not calibrated"
    return f"{units.time(run.step_ns())} unprofiled, {recorded}; the path is calibrated to {length}"


# --- tables


def categories_table(path: CriticalPath) -> RenderableType:
    """What bounds the step, and below it what that is made of."""
    rows: list[list[Cell]] = []
    sums = by_bound(path)
    for bound in dict.fromkeys(sums["bound"]):
        own = sums[sums["bound"] == bound]
        parts = list(own[["what", "ns", "stretches"]].itertuples(index=False, name=None))
        label = bound if len(parts) > 1 else f"{bound}: {parts[0][0]}"
        rows.append(category_row(path, label, own["ns"].sum(), own["stretches"].sum()))
        if len(parts) > 1:
            rows += [category_row(path, f"  {what}", ns, count, "") for what, ns, count in parts]
    total = category_row(path, "step", path.step_ns, sums["stretches"].sum(), "")
    return table(CATEGORIES, rows, total=total)


def category_row(path: CriticalPath, label: str, ns: float, count: float, drawn: str | None = None) -> list[Cell]:
    share = ns / path.step_ns
    return [label, *length(path, ns), bar(share) if drawn is None else drawn, units.calls(count)]


def ops_table(path: CriticalPath, top: int) -> RenderableType:
    sums = by_op(path)
    rows: list[list[Cell]] = [
        [name(short(op) or OUTSIDE), bound, *length(path, ns), name(bar(ns / path.step_ns))]
        for op, bound, ns in sums[["op", "bound", "ns"]].head(top).itertuples(index=False)
    ]
    if len(sums) > top:
        rows.append([f"{len(sums) - top} others", "", *length(path, sums["ns"][top:].sum()), ""])
    return table(OPS, rows, total=["step", "", *length(path, path.step_ns), ""])


def length(path: CriticalPath, ns: float) -> list[Cell]:
    return [units.digits(ns / MS), units.share(ns / path.step_ns)]


def times_table(path: CriticalPath, top: int) -> RenderableType:
    """The `top` longest stretches of all steps; shorter ones between two of them are one row."""
    total = ["", "", units.digits(path.step_ns / US), "mean step", "", ""]
    return table(TIMES, times_rows(path, top), total=total)


def times_rows(path: CriticalPath, top: int) -> Iterator[list[Cell]]:
    rows = path.rows
    ns = rows["to_ns"] - rows["from_ns"]
    long = ns.rank(method="first", ascending=False) <= top
    at = rows["from_ns"] - rows.groupby("step")["from_ns"].transform("min")
    listed = rows.assign(us=ns / US, at=at / MS, long=long)
    fresh = long | long.shift(fill_value=True) | (rows["step"] != rows["step"].shift())
    for _, own in listed.groupby(fresh.cumsum()):
        first = own.iloc[0]
        place = [str(first["step"]), units.digits(first["at"]), units.digits(own["us"].sum())]
        if first["long"]:
            yield [*place, first["what"], name(event(first)), name(lane(first))]
        else:
            yield [*place, f"{len(own):,} shorter", "", ""]


def event(stretch: "pd.Series[Any]") -> str:
    """The innermost event, and the op that it belongs to."""
    parts = dict.fromkeys(short(part) for part in (stretch["op"], stretch["name"]) if part)
    return ": ".join(parts) or units.MISSING


def lane(stretch: "pd.Series[Any]") -> str:
    if stretch["device"] >= 0:
        return f"device {stretch['device']} stream {stretch['stream']}"
    return units.MISSING if stretch["thread"] < 0 else f"thread {stretch['thread']}"


# --- records


def stretches(path: CriticalPath) -> pd.DataFrame:
    """All stretches, with the unit in a time's name; a place that a stretch does not have is missing."""
    rows = path.rows.drop(columns=HIDDEN).rename(columns=RENAMED).astype(dict.fromkeys(PLACES, object))
    return rows.assign(**{place: rows[place].where(rows[place] >= 0, None) for place in PLACES})


def csv_table(path: CriticalPath, by: str) -> pd.DataFrame:
    if by == "time":
        return stretches(path)
    return in_ms(path, by_bound(path) if by == "category" else by_op(path))


def in_ms(path: CriticalPath, sums: pd.DataFrame) -> pd.DataFrame:
    """Sums of the mean step in ms and as shares of it."""
    told = sums.assign(ms=sums["ns"] / MS, share=sums["ns"] / path.step_ns)
    return told[[*(column for column in sums if column not in ("ns", "stretches")), "ms", "share", "stretches"]]


def record(run: RunInfo, model: Model, path: CriticalPath | None) -> dict[str, Any]:
    """Times in ms of the mean step; those of `stretches` in ns. A path that is withheld is null."""
    known = {} if path is None else {"category": by_bound(path), "op": by_op(path)}
    sums = {by: in_ms(path, found).to_dict("records") for by, found in known.items() if path}
    return {
        "run": run.id,
        "coverage": asdict(cover(model.graph.facts)),
        "step_ms": path and to_ms(path.step_ns),
        "recorded_ms": to_ms(model.recorded_ns),
        "replay": replay_record(model),
        "withheld": model.withheld,
        "categories": sums.get("category"),
        "ops": sums.get("op"),
        "stretches": path and stretches(path).to_dict("records"),
    }
