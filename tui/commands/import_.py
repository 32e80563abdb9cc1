"""`qrprof import`: take over traces that others recorded."""

import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.console import RenderableType

from qrprof.profiler import units
from qrprof.profiler.errors import Exit
from qrprof.profiler.importer import Imported, import_run
from qrprof.tui.output import Cell, Column, field, name, say, table, write, write_json

EVERY: Final = 0.1  # s between two changes of the progress line
COLUMNS: Final = (
    Column("rank", right=True),
    Column("file", wraps=True),
    Column("events", right=True),
    Column("work", right=True),
    Column("device", wraps=True),
    Column("steps", wraps=True),
)


@click.command(name="import", epilog="Example: qrprof import trace.json.gz && qrprof rank")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(files: tuple[Path, ...], as_json: bool) -> int:
    """Take over traces of other profilers as a run.

    A FILE is a trace of torch.profiler (JSON, plain or gzip), an SQLite export of Nsight Systems, or a folder or a tar
    archive of them. Several are the ranks of one job. The files stay where they are.
    """
    meter = Meter()
    try:
        folder, taken = import_run(files, Path.cwd(), datetime.now().astimezone(), meter.tell if meter.shown else None)
    finally:
        meter.clear()
    if as_json:
        write_json({"run": folder.name, "ranks": [record(one) for one in taken]})
    else:
        write(page(folder, taken))
        say(f"imported as {folder.name}; see `qrprof rank`")
    return Exit.OK


class Meter:
    """A line on a terminal's stderr that says how far a file is read."""

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty()
        self.due = 0.0

    def tell(self, done: int, total: int) -> None:
        if time.monotonic() >= self.due:
            self.due = time.monotonic() + EVERY
            share = done / total if total else 1.0
            self.draw(f"qrprof: reading {100 * share:.0f} % of {units.size(total)}")

    def draw(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()

    def clear(self) -> None:
        if self.due:
            self.draw("")


def record(one: Imported) -> dict[str, Any]:
    return {
        "rank": one.rank,
        "file": one.source.origin,
        "events": one.events,
        "device_work": one.device_work,
        "devices": [device.name for device in one.used],
        "steps": one.steps,
        "notes": list(one.notes),
    }


def page(folder: Path, taken: list[Imported]) -> list[RenderableType]:
    blocks: list[RenderableType] = [field("run", folder.name), "", table(COLUMNS, map(row, taken))]
    notes: dict[str, list[int]] = {}
    for one in taken:
        for note in one.notes:
            notes.setdefault(note, []).append(one.rank)
    if notes:
        blocks.append("")
    for note, ranks in notes.items():
        whose = "" if len(ranks) == len(taken) else f"rank {', '.join(map(str, ranks))}: "
        blocks.append(field("note", whose + note))
    return blocks


def row(one: Imported) -> list[Cell]:
    devices = ", ".join(sorted({device.name for device in one.used})) or "no device work"
    part = Path(one.source.part).name or one.source.path.name
    return [str(one.rank), name(part), f"{one.events:,}", f"{one.device_work:,}", name(devices), name(one.steps)]
