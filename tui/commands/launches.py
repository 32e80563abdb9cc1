"""`qrprof launches`: what launching costs, and what a CUDA graph would save."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import pandas as pd
from rich.console import RenderableType

from qrprof.profiler import units
from qrprof.profiler.coverage import describe
from qrprof.profiler.errors import Exit
from qrprof.profiler.facts import find_facts
from qrprof.profiler.launches import SHORT_NS, Launches, find_launches, per_step
from qrprof.profiler.load import load_run
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.store import find_run
from qrprof.tui.output import Cell, Column, field, name, say, table, title, write, write_csv, write_json
from qrprof.tui.ranking import MS, run_line, short, to_ms

US = 1e3  # ns
COUNTS = ("launches", "items", "full", "empty", "depth", "short")
TIMES = ("api", "work", "full", "empty", "short")

COLUMNS = (
    Column("launches", right=True),
    Column("API ms", right=True),
    Column("empty", right=True),
    Column("wait us", right=True),
    Column("full", right=True),
    Column("wait us", right=True),
    Column("depth", right=True),
    Column("<10 us", right=True),
)


@click.command(epilog="Example: qrprof launches --top 5")
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the ops and kernels as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all launches as CSV.")
@click.option("--top", type=click.IntRange(1), default=12, show_default=True, help="Rows of a table.")
@click.option("--rank", "number", type=click.IntRange(0), default=0, show_default=True, help="Process of the run.")
def command(run: str | None, as_json: bool, as_csv: bool, top: int, number: int) -> int:
    """Show what launching costs, and what a CUDA graph would save.

    "full" are launches that found their stream still busy with earlier work when they returned: there the device is
    the limit. "empty" are the others: there the host is. "wait" is the mean time from a launch to the start of its
    work, "depth" how many launches were waiting before it. RUN is a run's id, the start of one, or its folder;
    without it, the last run.
    """
    if as_json and as_csv:
        raise click.UsageError("give --json or --csv, not both")
    info, trace = load_run(find_run(Path.cwd(), run), number)
    found = find_launches(find_facts(trace, info), info)
    if as_json:
        write_json(record(info, found))
    elif as_csv:
        write_csv(found.calls.rename(columns={"start": "start_ns"}))
        if found.calls.empty:
            say(f"there are no launches: {found.withheld}")
    else:
        write(page(info, found, top))
    return Exit.OK


def page(run: RunInfo, found: Launches, top: int) -> list[RenderableType]:
    blocks: list[RenderableType] = [field("run", run_line(run)), field("coverage", describe(found.coverage))]
    if found.calls.empty:
        return [*blocks, field("withheld", found.withheld or "")]
    total = total_of(found)
    blocks += [field("launches", launches_line(found, total)), field("short", short_line(total))]
    blocks += [field("graph", graph_line(found)), "", title("By op, of the mean recorded step:")]
    blocks += [launches_table("op", per_step(found.calls, "op"), top), "", title("By what is launched:")]
    return [*blocks, launches_table("what", per_step(found.calls, "what"), top)]


def total_of(found: Launches) -> dict[Any, Any]:
    return per_step(found.calls.assign(all=""), "all").to_dict("records")[0]


def launches_line(found: Launches, total: dict[Any, Any]) -> str:
    launched, items = units.counted(total["launches"], "launch"), units.counted(total["items"], "item")
    return (
        f"{launched} of {items} of device work in the mean recorded step of {units.time(found.recorded_ns)}, "
        f"{units.time(total['api_ns'])} in the calls; "
        f"{units.share(total['empty'] / total['launches'])} found their queue empty"
    )


def short_line(total: dict[Any, Any]) -> str:
    kernels = units.counted(total["short"], "kernel")
    return f"{kernels} under {units.time(SHORT_NS)}, {units.time(total['short_ns'])} in all"


def graph_line(found: Launches) -> str:
    if found.graph is None:
        return f"what a CUDA graph would save is withheld: {found.withheld}"
    step = "unprofiled" if found.step_ns else "recorded"
    low, high = units.time(found.graph.low_ns), units.time(found.graph.high_ns)
    return (
        f"a CUDA graph would save at most {high} (upper bound; {low} to {high}) of the mean {step} step of "
        f"{units.time(found.step_ns or found.recorded_ns)}, if all launches can be captured"
    )


def launches_table(by: str, sums: pd.DataFrame, top: int) -> RenderableType:
    rows = [row_of(row[by], row) for row in sums[:top].to_dict("records")]
    if len(sums) > top:
        rest = sums[top:]
        counted = [units.calls(rest["launches"].sum()), units.digits(rest["api_ns"].sum() / MS)]
        rows.append([f"{len(rest)} others", *counted, *[""] * (len(COLUMNS) - 2)])
    return table((Column(by, wraps=True), *COLUMNS), rows)


def row_of(what: str, sums: dict[Any, Any]) -> list[Cell]:
    return [
        name(short(what)),
        units.calls(sums["launches"]),
        units.digits(sums["api_ns"] / MS),
        units.calls(sums["empty"]),
        mean_us(sums["empty_ns"], sums["empty"]),
        units.calls(sums["full"]),
        mean_us(sums["full_ns"], sums["full"]),
        units.digits(sums["depth"]),
        units.calls(sums["short"]),
    ]


def mean_us(ns: float, count: float) -> str:
    return units.digits(ns / count / US) if count else units.MISSING


# --- records


def record(run: RunInfo, found: Launches) -> dict[str, Any]:
    """Numbers and times of the mean recorded step; the saving is of the mean unprofiled one where that was timed."""
    graph = found.graph
    return {
        "run": run.id,
        "coverage": asdict(found.coverage),
        "step_ms": to_ms(found.step_ns),
        "recorded_ms": to_ms(found.recorded_ns),
        "withheld": found.withheld,
        "graph_saving_ms": {"low": to_ms(graph.low_ns), "upper_bound": to_ms(graph.high_ns)} if graph else None,
        "total": None if found.calls.empty else sums_record(total_of(found)),
        "ops": [{"op": sums["op"], **sums_record(sums)} for sums in per_step(found.calls, "op").to_dict("records")],
        "work": [
            {"what": sums["what"], **sums_record(sums)} for sums in per_step(found.calls, "what").to_dict("records")
        ],
    }


def sums_record(sums: Mapping[Any, Any]) -> dict[str, float]:
    return {name: sums[name] for name in COUNTS} | {f"{name}_ms": sums[f"{name}_ns"] / MS for name in TIMES}
