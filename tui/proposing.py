"""A file that the gate has passed becomes a swap that a person may accept."""

import getpass
import os
from datetime import UTC, datetime
from pathlib import Path

from qrprof.planner.gate.evidence import Kept
from qrprof.planner.gate.records import Task
from qrprof.planner.ledger import opened
from qrprof.planner.swaps import proposals, store
from qrprof.planner.swaps.decide import Deciding
from qrprof.profiler.errors import QrprofError
from qrprof.tui.commands.verdict import why
from qrprof.tui.output import say


def deciding() -> Deciding:
    """The person at this terminal, now, in the working folder."""
    try:
        who = getpass.getuser()
    except (KeyError, OSError):  # no entry for this user, as in containers
        who = str(os.getuid())
    return Deciding(Path.cwd(), who, datetime.now(UTC))


def propose_file(task: Task, source: bytes, kept: Kept) -> str:
    """Propose a file that the gate passed, and return its name; "" with a line on stderr where that cannot be done."""
    by = deciding()
    try:
        text = source.decode()
        found = proposals.of_file(task, text, kept.verdict)
        change = by.change("verified", f"the gate: PASS: {why(kept.verdict)}", kept.verdict.id)
        with opened(by.root) as connection:
            return store.propose(connection, found, text, change).name
    except (QrprofError, UnicodeDecodeError) as error:
        say(f"note: this candidate is not proposed as a swap: {error}")
        return ""
