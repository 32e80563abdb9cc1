"""`qrprof history`: what optimizations tried, and what came of it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.console import RenderableType

from qrprof.planner.ledger import ledger_file
from qrprof.planner.optimize import beam
from qrprof.planner.optimize.budget import Spent
from qrprof.planner.optimize.journal import CANDIDATE, SPENT, Journal, Listed
from qrprof.planner.optimize.records import Candidate, Event, Start, Usage
from qrprof.profiler import units
from qrprof.profiler.errors import Exit
from qrprof.profiler.store import FOLDER
from qrprof.tui.commands.hint import existing_journal
from qrprof.tui.commands.verdict import SHA, between
from qrprof.tui.output import Cell, Column, field, full, name, say, table, title, write, write_json
from qrprof.tui.progress import spent_line

LEAF: Final = 72  # cells of a line of the tree
LIST: Final = (
    Column("optimization"),
    Column("task", wraps=True),
    Column("tried", right=True),
    Column("ended", wraps=True),
)
TRIED: Final = (
    Column("#", right=True),
    Column("of", right=True),
    Column("rung"),
    Column("outcome"),
    Column("speed", right=True),
    Column("low..high", right=True),
    Column("changed", wraps=True),
    Column("why", wraps=True),
)


@dataclass(frozen=True)
class Told:
    """One optimization with all that the ledger knows of it."""

    start: Start
    candidates: Sequence[Candidate]
    events: Sequence[Event]
    spent: Spent

    @property
    def ended(self) -> Event | None:
        return next((event for event in reversed(self.events) if event.kind == "ended"), None)


@click.command(epilog="Example: qrprof history 20260201-0900")
@click.argument("wanted", metavar="[ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(wanted: str | None, as_json: bool) -> int:
    """Show what an optimization tried, and what came of it.

    A table, and a tree of what was made of what.
    ID is an optimization's id or the start of one; without it all are listed, the newest first. "speed" is over the
    file that the optimization started from, "of" the candidate that another was made from.
    """
    if wanted is None:
        found = existing_journal(Path.cwd()).optimizations() if ledger_file(Path.cwd()).exists() else []
        return show_list(found, as_json)
    told = lookup(existing_journal(Path.cwd()), wanted)
    if as_json:
        write_json(record(told))
    else:
        write(page(told))
    return Exit.OK


def lookup(journal: Journal, wanted: str) -> Told:
    start = journal.start(wanted)
    return Told(start, journal.candidates(start.id), journal.events(start.id), journal.spent(start.id))


def show_list(found: Sequence[Listed], as_json: bool) -> int:
    if as_json:
        write_json({"optimizations": [listed_record(one) for one in found]})
    elif found:
        write([table(LIST, [listed_row(one) for one in found])])
    else:
        say(f"no optimizations in {FOLDER}; `qrprof optimize` makes one")
    return Exit.OK


def listed_row(one: Listed) -> list[Cell]:
    ended = str(one.ended["text"]).partition(";")[0] if one.ended else "not yet, or it was stopped"
    return [full(one.id), name(one.task), str(one.candidates), full(ended)]


# --- one optimization


def page(told: Told) -> list[RenderableType]:
    blocks: list[RenderableType] = [title(told.start.id), *(field(label, text) for label, text in facts(told))]
    if told.candidates:
        numbers = {one.sha256: one.number for one in told.candidates}
        rows = [row(one, numbers) for one in told.candidates]
        blocks += ["", table(TRIED, rows), "", title("What was made of what:"), *tree(told.candidates)]
    return blocks


def facts(told: Told) -> list[tuple[str, str]]:
    start, ended = told.start, told.ended
    best = beam.best(told.candidates)
    found = [
        ("task", start.task.id),
        ("target", f"{start.target} of {start.run_id}" if start.run_id else "none: an existing task"),
        ("proposer", start.proposer),
        *(("spent", f"{role}: {spent_line(usage)}") for role, usage in told.spent.items() if usage != Usage()),
        ("best", f"#{best.number}, {speed_line(best)}, sha256 {best.sha256[:SHA]}" if best else "none"),
        ("ended", str(ended.record["text"]) if ended else "not yet, or it was stopped: `qrprof optimize --resume`"),
    ]
    found += [("hint", str(event.record["text"])) for event in told.events if event.kind == "hint"]
    return found + [
        ("trouble", f"{event.record['what']}: {event.record['text']}")
        for event in told.events
        if event.kind == "trouble"
    ]


def speed_line(candidate: Candidate) -> str:
    return f"{between(candidate.over)} the starting file's speed" if candidate.over else "not timed"


def row(one: Candidate, numbers: dict[str, int]) -> list[Cell]:
    parent = numbers.get(one.proposal.parent or "")
    ends = f"{units.ratio(one.over.low)}..{units.ratio(one.over.high)}" if one.over else units.MISSING
    return [
        str(one.number),
        str(parent) if parent else "start",
        one.rung,
        one.outcome,
        units.ratio(one.over.mid if one.over else None),
        ends,
        full(one.proposal.changed),
        full(one.why),
    ]


def tree(candidates: Sequence[Candidate]) -> Iterator[str]:
    """A line for each, below what it was made from and indented by two more."""
    known = {one.sha256 for one in candidates}
    children: dict[str, list[Candidate]] = defaultdict(list)
    for one in candidates:
        parent = one.proposal.parent
        children[parent if parent in known and parent != one.sha256 else ""].append(one)

    def below(parent: str, indent: str) -> Iterator[str]:
        for one in children[parent]:
            yield indent + leaf(one)
            yield from below(one.sha256, f"{indent}  ")

    yield "start"
    yield from below("", "  ")


def leaf(one: Candidate) -> str:
    speed = f" {units.ratio(one.over.mid)}" if one.over else ""
    return full(f"#{one.number} {one.outcome}{speed} {one.proposal.changed}", LEAF)


# --- JSON


def listed_record(one: Listed) -> dict[str, Any]:
    return {
        "id": one.id,
        "made_at": one.made_at,
        "run": one.run_id,
        "target": one.target,
        "task": one.task,
        "candidates": one.candidates,
        "ended": one.ended,
    }


def record(told: Told) -> dict[str, Any]:
    """Everything but the files' texts, which are known by their sha256."""
    start = told.start
    return {
        "id": start.id,
        "run": start.run_id,
        "target": start.target,
        "task": start.task.id,
        "proposer": start.proposer,
        "spent": SPENT.dump_python(told.spent),
        "candidates": [without_source(one) for one in told.candidates],
        "events": [{"kind": event.kind, "at": event.at, **event.record} for event in told.events],
    }


def without_source(one: Candidate) -> dict[str, Any]:
    found: dict[str, Any] = CANDIDATE.dump_python(one)
    del found["proposal"]["source"]
    return found
