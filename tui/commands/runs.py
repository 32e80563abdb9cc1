"""`qrprof runs`: what has been recorded in the working folder."""

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qrprof.planner.ledger import ledger_file
from qrprof.profiler import units
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.runinfo import RunInfo, read_run_info
from qrprof.profiler.store import RUN_FILE, run_folders
from qrprof.tui.commands.hint import existing_journal
from qrprof.tui.output import Cell, Column, field, name, say, table, write, write_json

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = (
    Column("id"),
    Column("command", wraps=True),
    Column("step", right=True),
    Column("recorded", right=True),
)
SPARE = ((Column("ranks", right=True), "1"), (Column("optimized", right=True), ""))  # with what they say of most runs


@dataclass(frozen=True)
class Listed:
    """A run's folder with its record, or with the reason why it cannot be read."""

    folder: Path
    run: RunInfo | None
    broken: str | None = None


def look(folder: Path) -> Listed:
    try:
        return Listed(folder, read_run_info(folder / RUN_FILE))
    except QrprofError as error:
        return Listed(folder, None, str(error))


def ranks(listed: Listed) -> str:
    """Ranks of the run; "3 of 8" where files of some are missing."""
    world = listed.run.world_size if listed.run else 1
    there = 1 + len(list(listed.folder.glob("run.rank*.json")))
    return str(world) if there == world else f"{there} of {world}"


def optimizations(root: Path) -> Mapping[str, Sequence[str]]:
    """Ids of the optimizations of each run, oldest first."""
    found: dict[str, list[str]] = defaultdict(list)
    if ledger_file(root).exists():
        for one in reversed(existing_journal(root).optimizations()):
            found[one.run_id].append(one.id)
    return found


def record(listed: Listed, optimized: Sequence[str]) -> dict[str, object]:
    run = listed.run
    step = run.step_ns() if run else None
    return {
        "id": listed.folder.name,
        "created": run.created if run else None,
        "command": run.command if run else None,
        "step_ms": None if step is None else step / 1e6,
        "steps_recorded": (len(run.recorded) or None) if run else None,  # an import's trace is not asked
        "ranks": run.world_size if run else None,
        "optimizations": list(optimized),
        "broken": listed.broken,
    }


@click.command(epilog="Example: qrprof runs --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> int:
    """List the recorded runs.

    Those in .qrprof of the working folder, oldest first; "optimized" is how often: see `qrprof history`.
    """
    listed = [look(folder) for folder in run_folders(Path.cwd())]
    optimized = optimizations(Path.cwd())
    if as_json:
        write_json({"runs": [record(one, optimized.get(one.folder.name, ())) for one in listed]})
        return Exit.OK
    if not listed:
        say("no runs in .qrprof; record one with `qrprof trace train.py`")
        return Exit.OK
    rows = [
        (
            name(one.folder.name),
            name(shlex.join([Path(one.run.command[0]).name, *one.run.command[1:]])),
            units.time(one.run.step_ns()),
            str(len(one.run.recorded) or units.MISSING),
            ranks(one),
            str(len(optimized.get(one.folder.name, ())) or ""),
        )
        for one in listed
        if one.run
    ]
    broken = [field("broken", f"{one.folder.name}: {one.broken}") for one in listed if not one.run]
    write([*([shown(rows)] if rows else []), *broken])
    return Exit.OK


def shown(rows: Sequence[tuple[Cell, ...]]) -> "Table":
    """Without a column that says the usual of all: at 80 cells a command needs the place."""
    columns = (*COLUMNS, *(column for column, _ in SPARE))
    usual = (*(None for _ in COLUMNS), *(value for _, value in SPARE))
    places = [place for place, value in enumerate(usual) if any(row[place] != value for row in rows)]
    return table([columns[place] for place in places], [[row[place] for place in places] for row in rows])
