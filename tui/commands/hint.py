"""`qrprof hint`: a word to an optimization, also while it runs."""

from pathlib import Path

import click

from qrprof.planner.ledger import ledger_file
from qrprof.planner.optimize.journal import Journal, journal_of
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.store import FOLDER
from qrprof.tui.output import clean, say


@click.command(epilog='Example: qrprof hint 20260201-0900 "most matrices are nearly triangular"')
@click.argument("wanted", metavar="ID")
@click.argument("text")
def command(wanted: str, text: str) -> int:
    """Tell an optimization what to try.

    ID is an optimization's id or the start of one; a running one reads the hint before its next proposals. A search
    takes no notice of hints: they are for a model.
    """
    if not clean(text).strip():
        raise click.UsageError("TEXT is empty")
    journal = existing_journal(Path.cwd())
    name = journal.start(wanted).id
    journal.add_hint(name, clean(text).strip())
    say(f"kept for {name}")
    return Exit.OK


def existing_journal(root: Path) -> Journal:
    """Raises QrprofError (exit code 2) where the working folder has no ledger."""
    if not ledger_file(root).exists():
        raise QrprofError(f"no optimizations in {FOLDER}; `qrprof optimize` makes one", Exit.USAGE)
    return journal_of(root)
