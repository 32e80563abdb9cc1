"""What the ledger knows of a run: what was suggested for it, on what evidence, and what became of predictions."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from qrprof.planner.gate import evidence
from qrprof.planner.gate.evidence import Kept
from qrprof.planner.gate.task_store import TASK_FILE, read_task, task_folders
from qrprof.planner.ledger import looked_up
from qrprof.planner.optimize.journal import Journal, journal_of
from qrprof.planner.predictions import Listed, listed, summary
from qrprof.planner.swaps import store
from qrprof.planner.swaps.records import KeptSwap
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.runinfo import RunInfo
from qrprof.tui.commands import history, predictions, verdict
from qrprof.tui.output import Column, name
from qrprof.tui.report.blocks import Block, Fields, Row, Section, Table
from qrprof.tui.report.sections import TOP, heads

FULL: Final = 3  # verdicts with all their evidence
SWAPS: Final = (Column("swap"), Column("kind"), Column("state"), Column("since"), Column("why", wraps=True))


def evidence_sections(root: Path, run: RunInfo) -> list[Section]:
    """Sections for what there is, of the ledger of the working folder `root`; one that cannot be read says so."""
    try:
        found = [suggestions_section(root, run), predictions_section(root, run)]
    except QrprofError as error:
        return [Section("suggestions", "Suggestions", [Fields([("not read", str(error))])])]
    return [section for section in found if section.blocks]


# --- suggestions


def suggestions_section(root: Path, run: RunInfo) -> Section:
    swaps = [one for one in looked_up(root, store.listed) if one.swap.run_id == run.id]
    journal = journal_of(root)
    made = [one for one in looked_up(root, lambda _: journal.optimizations()) if one.run_id == run.id]
    tasks = {one.task for one in made} | tasks_of(root, run)
    ids = {one.swap.verdict for one in swaps}
    judged = [one for one in looked_up(root, evidence.listed) if one.task in tasks or one.id in ids]
    passed = [one.id for one in judged if one.outcome == "PASS"][:FULL]
    kept = looked_up(root, lambda connection: [evidence.find(connection, one) for one in passed])
    blocks: list[Block] = []
    if swaps:
        blocks.append(Table("Swaps", heads(SWAPS, "since"), [swap_row(one) for one in swaps]))
    blocks += [block for one in kept for block in verdict_blocks(one)]
    if judged:
        rows = [Row(verdict.row(one, verdict.letter(one, judged))) for one in judged[:TOP]]
        note = f"{len(judged) - TOP} others" if len(judged) > TOP else ""
        blocks.append(Table("Verdicts of the gate", heads(verdict.LIST, "task", "on"), rows, note=note))
    blocks += [optimization_fields(journal, one.id) for one in made]
    lead = "What was suggested for this run, and what speaks for it: a verdict is the gate's, on private inputs."
    return Section("suggestions", "Suggestions", blocks, lead)


def tasks_of(root: Path, run: RunInfo) -> set[str]:
    """Ids of the tasks that were made from the run."""
    tasks = (read_task(folder / TASK_FILE) for folder in task_folders(root))
    return {task.id for task in tasks if task.origin == run.id}


def swap_row(one: KeptSwap) -> Row:
    last = one.changes[-1]
    return Row([name(one.name), one.swap.kind, one.state, last.at, last.why])


def verdict_blocks(kept: Kept) -> Iterator[Block]:
    found = kept.verdict
    yield Fields([("why", verdict.why(found)), *verdict.facts(kept)], verdict.headline(found))
    if found.times:
        numbers = ("stock", "candidate", "speedup", "low..high", "pairs", "calls")
        columns = (Column("case"), *(Column(head, right=True) for head in numbers))
        rows = [Row(verdict.times_row(time, with_parent=False)) for time in found.times]
        yield Table("Times of a call, ms, medians by the parent's clock", heads(columns, "pairs", "calls"), rows)


def optimization_fields(journal: Journal, optimization: str) -> Fields:
    return Fields(history.facts(history.lookup(journal, optimization)), f"Optimization {optimization}")


# --- predictions


def predictions_section(root: Path, run: RunInfo) -> Section:
    def own(connection: sqlite3.Connection) -> list[Listed]:
        return [one for one in listed(connection) if one.prediction.run_id == run.id]

    found = looked_up(root, own)
    found.sort(key=lambda one: one.measurement is None)  # what has come true first
    rows = [Row(predictions.row(one)) for one in found[:TOP]]
    blocks: list[Block] = []
    if rows:
        rest = f"{len(found) - TOP} others; " if len(found) > TOP else ""
        note = rest + predictions.summary_line(summary(found))
        blocks.append(Table("", heads(predictions.COLUMNS, "id", "run"), rows, note=note))
    lead = "The step with each change, as it was predicted from this run, and as it was measured once it had been made."
    return Section("predictions", "Predictions", blocks, lead)
