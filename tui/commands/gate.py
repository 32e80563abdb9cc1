"""`qrprof gate`: is this candidate kernel right, and faster than the stock op?"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click

from qrprof.planner.gate.evidence import QUERIES, Kept, count_holdout, keep, made, spent
from qrprof.planner.gate.records import Outcome, Task, Verdict
from qrprof.planner.gate.task_store import load_task
from qrprof.planner.ledger import opened
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.recording.relay import ended_by_signals
from qrprof.tui.commands.bench import STDOUT
from qrprof.tui.commands.task import FILE
from qrprof.tui.commands.verdict import page, record
from qrprof.tui.output import clean, save_json, say, write, write_json

if TYPE_CHECKING:  # torch is imported once the command runs
    from qrprof.planner.gate.sandbox import Layer

CODES: Final[Mapping[Outcome, Exit]] = {
    "PASS": Exit.OK,
    "FAIL": Exit.FAILED,
    "SUSPECT": Exit.FAILED,
    "UNKNOWN": Exit.UNKNOWN,
    "INFRA": Exit.INFRA,
}


@click.command(epilog="Example: qrprof gate fast_qr.py --task geqrf-small")
@click.argument("file", type=FILE)
@click.option("--task", "task_id", metavar="ID", required=True, help="What it is to do: see `qrprof task list`.")
@click.option("--parent", type=FILE, metavar="FILE", help="A candidate that it has to be faster than, too.")
@click.option("--json", "target", metavar="FILE", type=click.Path(path_type=Path), help="Write JSON; - prints it.")
@click.option("--allow-unsandboxed", "unsandboxed", is_flag=True, help="Run FILE also where nothing can contain it.")
def command(file: Path, task_id: str, parent: Path | None, target: Path | None, unsandboxed: bool) -> int:
    """Judge whether a candidate kernel is right, and faster.

    FILE defines `candidate`, which takes the stock op's arguments and gives its outputs. It runs in processes of its
    own, contained, and is checked and timed against the stock op. The verdict is kept: `qrprof verdict` shows it again.

    \b
    0  PASS
    1  FAIL, or SUSPECT: the evidence contradicts itself
    3  not run: nothing can contain it, or the task's device is not here
    4  UNKNOWN: evidence is missing
    5  INFRA: the machine failed, not the candidate
    """
    from qrprof.planner.gate.here import layer_for

    task = load_task(Path.cwd(), task_id)
    layer = layer_for(str(file), unsandboxed)
    with ended_by_signals(), TemporaryDirectory(prefix="qrprof-gate-") as folder:
        candidate = frozen(file, Path(folder, "candidate.py"))
        verdict = judged(task, candidate, frozen(parent, Path(folder, "parent.py")) if parent else None, layer)
        source = candidate.read_bytes()
    kept = made(verdict, clean(str(file)), clean(str(parent)) if parent else None, datetime.now(UTC))
    remember(kept)
    if target == STDOUT:
        write_json(record(kept))
    else:
        write(page(kept))
        if target is not None:
            save_json(target, record(kept))
    if verdict.outcome == "PASS":
        propose(task, source, kept)
    return CODES[verdict.outcome]


def frozen(file: Path, copy: Path) -> Path:
    """A copy that nobody edits while it is judged: each of its processes starts from it."""
    try:
        source = file.read_bytes()
        source.decode()
        copy.write_bytes(source)
    except OSError as error:
        raise QrprofError(f"cannot copy {file} to {copy.parent}: {error.strerror}; make room, or it readable") from None
    except UnicodeDecodeError as error:
        what = f"byte {source[error.start]:#04x} at {error.start}"
        raise QrprofError(f"{file} is not UTF-8 ({what}); save it as UTF-8", Exit.USAGE) from None
    return copy


def judged(task: Task, candidate: Path, parent: Path | None, layer: "Layer", included: Path | None = None) -> Verdict:
    """`included`: as `here.workers_on` has it.

    Raises QrprofError (exit code 3) where the task's device is not here, and where the ledger cannot be used."""
    from qrprof.planner.gate.environment import machine
    from qrprof.planner.gate.gate import Lane
    from qrprof.planner.gate.here import judge, workers_on
    from qrprof.planner.optimize.slots import held, slot_of

    with held(slot_of(machine(task.device)), waiting):
        with opened(Path.cwd()) as connection:
            before = spent(connection, task.id)
        lane = Lane(before.tries + 1, partial(query, task, sha256(candidate.read_bytes()).hexdigest()))
        return judge(task, candidate, parent, workers_on(task.device, layer, included), lane, say=say)


@contextmanager
def waiting() -> Iterator[None]:
    say("waiting: another qrprof measures on this device")
    yield


def query(task: Task, candidate: str) -> int | None:
    """Count one more query of the task's holdout; None: none is left."""
    with opened(Path.cwd()) as connection:
        return count_holdout(connection, task.id, candidate, QUERIES, datetime.now(UTC))


def propose(task: Task, source: bytes, kept: Kept) -> None:
    """As a swap, which a person may accept."""
    from qrprof.tui.proposing import propose_file

    if name := propose_file(task, source, kept):
        say(f"it can run in your program: `qrprof swaps accept {name}`")


def remember(kept: Kept) -> None:
    """Keep the verdict in the ledger. Where that cannot be done, one line on stderr says so: it stands all the same."""
    try:
        with opened(Path.cwd()) as connection:
            keep(connection, kept)
    except QrprofError as error:
        say(f"note: this verdict is not kept: {error}")
