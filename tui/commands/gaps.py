"""`qrprof gaps`: when the device had nothing to do, and why."""

from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click
import pandas as pd
from rich.console import RenderableType

from qrprof.profiler import units
from qrprof.profiler.blame import GAP_LABELS
from qrprof.profiler.coverage import describe
from qrprof.profiler.errors import Exit
from qrprof.profiler.facts import find_facts
from qrprof.profiler.gaps import THRESHOLD_NS, DeviceIdle, Gap, Idle, by_cause, find_idle
from qrprof.profiler.load import load_run
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.store import find_run
from qrprof.tui.output import Cell, Column, bar, field, name, say, table, title, write, write_csv, write_json
from qrprof.tui.ranking import MS, run_line, short, to_ms

US = 1e3  # ns
WHOLE = "a gap counts as a whole for the cause of most of it; `qrprof rank` divides it among its causes"
RENAMED = {"start": "start_ns", "ns": "duration_ns"}  # of the fields of a gap

CAUSES = (
    Column("cause", wraps=True),
    Column("gaps", right=True),
    Column("ms/step", right=True),
    Column("share", right=True),
    Column(""),
)
LONGEST = (
    Column("us", right=True),
    Column("share", right=True),
    Column("step", right=True),
    Column("cause"),
    Column("blamed on", wraps=True),
    Column("next work", wraps=True),
)


@click.command(epilog="Example: qrprof gaps --top 5")
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print all gaps as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all gaps as CSV.")
@click.option("--top", type=click.IntRange(1), default=12, show_default=True, help="Gaps listed one by one.")
@click.option("--rank", "number", type=click.IntRange(0), default=0, show_default=True, help="Process of the run.")
def command(run: str | None, as_json: bool, as_csv: bool, top: int, number: int) -> int:
    """Show when the device had nothing to do, and why.

    A gap is a time of over 3 us inside the recorded steps in which no stream of the device works. RUN is a run's id,
    the start of one, or its folder; without it, the last run.
    """
    if as_json and as_csv:
        raise click.UsageError("give --json or --csv, not both")
    info, trace = load_run(find_run(Path.cwd(), run), number)
    idle = find_idle(find_facts(trace, info), info)
    if as_json:
        write_json(record(info, idle))
    elif as_csv:
        write_csv(csv_table(idle))
        if idle.gaps is None:
            say(f"gaps are withheld: {idle.withheld}")
    else:
        write(page(info, idle, top))
    return Exit.OK


def page(run: RunInfo, idle: Idle, top: int) -> list[RenderableType]:
    blocks: list[RenderableType] = [field("run", run_line(run)), field("coverage", describe(idle.coverage))]
    if idle.gaps is None:
        return [*blocks, field("withheld", idle.withheld or "")]
    blocks += [field(label(device, idle), device_line(device, idle)) for device in idle.devices]
    blocks += [field("step", step_line(idle)), "", causes_table(idle)]
    if idle.gaps:
        blocks += ["", title("The longest gaps, as recorded:"), longest_table(idle.gaps, top), "", field("note", WHOLE)]
    return blocks


def label(device: DeviceIdle, idle: Idle) -> str:
    return "device" if len(idle.devices) == 1 else f"device {device.device}"


def device_line(device: DeviceIdle, idle: Idle) -> str:
    shares = [units.share(ns / idle.recorded_ns) for ns in (device.busy_ns, device.gap_ns, device.short_ns)]
    return (
        f"busy {shares[0]} of the mean recorded step of {units.time(idle.recorded_ns)}; {shares[1]} in gaps, "
        f"{shares[2]} in pauses of up to {units.time(THRESHOLD_NS)}"
    )


def step_line(idle: Idle) -> str:
    if idle.withheld:
        return f"times are as recorded and no shares: {idle.withheld}"
    if idle.step_ns is None:
        return "not timed without the profiler: times and shares are of the recorded step"
    return f"{units.time(idle.step_ns)} unprofiled; times and shares are calibrated with the factor {idle.factor:.2f}"


def causes_table(idle: Idle) -> RenderableType:
    sums = by_cause(idle)
    several = len(idle.devices) > 1
    rows = [
        causes_row(f"{GAP_LABELS[cause]} (device {device})" if several else GAP_LABELS[cause], gaps, ns, share)
        for device, cause, gaps, ns, share in sums[["device", "cause", "gaps", "ns", "share"]].itertuples(index=False)
    ]
    if several:  # what one device idles says nothing of the others: their times are not to be added
        return table(CAUSES, rows)
    total = causes_row("all gaps", sums["gaps"].sum(), sums["ns"].sum(), sums["share"].sum(skipna=False))
    return table(CAUSES, rows, total=total)


def causes_row(cause: str, gaps: float, ns: float, share: float) -> list[Cell]:
    known = None if pd.isna(share) else share
    return [cause, units.calls(gaps), units.digits(ns / MS), units.share(known), name(bar(known))]


def longest_table(gaps: Iterable[Gap], top: int) -> RenderableType:
    longest = sorted(gaps, key=lambda gap: -gap.ns)
    rows = [longest_row(gap) for gap in longest[:top]]
    if len(longest) > top:
        rest = sum(gap.ns for gap in longest[top:])
        rows.append([units.digits(rest / US), "", "", "", f"{len(longest) - top} others", ""])
    return table(LONGEST, rows)


def longest_row(gap: Gap) -> list[Cell]:
    return [
        units.digits(gap.ns / US),
        units.share(gap.share),
        str(gap.step),
        GAP_LABELS[gap.cause],
        name(blamed(gap)),
        name(gap.after or units.MISSING),
    ]


def blamed(gap: Gap) -> str:
    """The op, the call or annotation in it, and the place where it was called."""
    parts = ": ".join(dict.fromkeys(short(part) for part in (gap.op, gap.event) if part))
    return f"{parts} ({gap.where})" if gap.where and gap.where != parts else parts or units.MISSING


# --- records


def gap_record(gap: Gap) -> dict[str, Any]:
    return {RENAMED.get(column, column): value for column, value in vars(gap).items()}


def csv_table(idle: Idle) -> pd.DataFrame:
    """All gaps, with the unit in a column's name."""
    columns = [RENAMED.get(column.name, column.name) for column in fields(Gap)]
    return pd.DataFrame([gap_record(gap) for gap in idle.gaps or []], columns=columns, dtype=object)


def record(run: RunInfo, idle: Idle) -> dict[str, Any]:
    """Times in ms of the mean step, gaps in ns as recorded; `gaps` is null where they are withheld."""
    sums = by_cause(idle)
    return {
        "run": run.id,
        "coverage": asdict(idle.coverage),
        "step_ms": to_ms(idle.step_ns),
        "recorded_ms": to_ms(idle.recorded_ns),
        "factor": idle.factor,
        "withheld": idle.withheld,
        "devices": [device_record(device) for device in idle.devices],
        "causes": sums.assign(ms=sums["ns"] / MS)[["device", "cause", "gaps", "ms", "share"]].to_dict("records"),
        "gaps": None if idle.gaps is None else [gap_record(gap) for gap in idle.gaps],
    }


def device_record(found: DeviceIdle) -> dict[str, Any]:
    return {
        "device": found.device,
        "busy_ms": to_ms(found.busy_ns),
        "gaps_ms": to_ms(found.gap_ns),
        "pauses_ms": to_ms(found.short_ns),
    }
