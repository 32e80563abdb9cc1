"""Commands that are killed at random moments, and what has to hold of what each leaves behind.

Each generator goes on for ever, kills its command once for each item, and raises AssertionError where anything that was
saved is lost, or anything half-written is taken for whole.
"""

import io
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from conftest import Workshop
from swap_cases import loaded, now, verified, workplace
from test_optimize_end_to_end import ROUTER, SLOW, steadied

from qrprof.kernels.trust import trusted
from qrprof.planner.ledger import opened
from qrprof.planner.optimize.journal import journal_of
from qrprof.profiler.load import load_run, ranks
from qrprof.profiler.store import run_folders
from qrprof.tui.cli import run

TESTS = Path(__file__).parent
TRACE = TESTS / "data" / "own_h200_mlp_eager.json.gz"
BODY = "for _ in range(60):\n    step()\n    torch.linalg.qr(torch.randn(8, 8))\n"
QRPROF = ("-m", "qrprof")
# `qrprof optimize`, with a gate whose clock is scripted.
OPTIMIZE = """
import sys
sys.path.insert(0, sys.argv[1])
from test_optimize_end_to_end import Scripted
from qrprof.planner.optimize import pool
from qrprof.tui.cli import run

pool.LocalPool = Scripted
sys.exit(run(["optimize", *sys.argv[2:]]))
"""
BEYOND = 1.25  # of the time that a command took: a busy machine must not spare its end
KILLS_EACH = 3  # of one optimization, before it is let end


@dataclass(frozen=True)
class Kill:
    at_s: float  # after the start of the command
    whole_s: float  # that the command took when it was let end, before all kills
    left: str  # in words
    late: bool = False  # the command had ended, and nothing was killed


def until_struck(kills: Iterator[Kill], count: int) -> list[Kill]:
    """As many kills of a running command, and those between them that came too late."""
    found: list[Kill] = []
    while sum(not kill.late for kill in found) < count:
        found.append(next(kills))
    return found


@dataclass(frozen=True)
class Command:
    """What python is called with, and where."""

    words: Sequence[str]
    folder: Path
    environment: Mapping[str, str]

    def start(self) -> "subprocess.Popen[bytes]":
        nowhere = subprocess.DEVNULL
        command = [sys.executable, *self.words]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdin=nowhere, stdout=nowhere, stderr=nowhere
        )

    def whole(self) -> float:
        """Run it to its end; the seconds that it took."""
        begun = time.monotonic()
        assert self.start().wait() == 0, self.words
        return time.monotonic() - begun

    def killed(self, took_s: float, alone: bool = False) -> tuple[float, bool]:
        """Kill it at a random moment, and unless `alone` all its children too: after how long, and whether too late.

        What is left of it has ended when this returns.
        """
        begun, process = time.monotonic(), self.start()
        with suppress(subprocess.TimeoutExpired):
            process.wait(random.uniform(0, BEYOND * took_s))
        at_s, children = time.monotonic() - begun, []
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in children if not alone else ():
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children)
        return at_s, process.wait() != -signal.SIGKILL


# --- trace and import


def traces(shop: Workshop, alone: bool = False) -> Iterator[Kill]:
    """Kills of `qrprof trace`; if `alone`, the program itself goes on."""
    shop.write("train.py", shop.setup + BODY)
    return recordings(Command((*QRPROF, "trace", "train.py"), shop.folder, shop.environment()), alone)


def imports(shop: Workshop) -> Iterator[Kill]:
    return recordings(Command((*QRPROF, "import", str(TRACE)), shop.folder, shop.environment()))


def recordings(command: Command, alone: bool = False) -> Iterator[Kill]:
    """Kills of a command that makes one run."""
    root, took = command.folder, command.whole()
    saved: dict[Path, bytes] = {}
    folders = {folder.name for folder in (root / ".qrprof" / "runs").iterdir()}
    while True:
        new = [folder for folder in run_folders(root) if folder / "run.json" not in saved]
        saved |= {path: text for folder in new for path, text in contents(folder).items()}
        at_s, late = command.killed(took, alone)
        assert {path: path.read_bytes() for path in saved} == saved
        made = [folder for folder in run_folders(root) if folder / "run.json" not in saved]
        assert len(made) <= 1
        require_whole(root, made)
        begun = {folder.name for folder in (root / ".qrprof" / "runs").iterdir()} - folders
        folders |= begun
        yield Kill(at_s, took, "a whole run" if made else "a part that is no run" if begun else "nothing", late)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def require_whole(root: Path, folders: Sequence[Path]) -> None:
    """These runs can be read and ranked, and all runs listed."""
    with chdir(root), redirect_stdout(io.StringIO()):
        for folder in folders:
            for rank in ranks(folder):
                record, trace = load_run(folder, rank)
                assert (record.id, trace.warnings, len(trace.events) > 0) == (folder.name, (), True)
            assert run(["rank", folder.name]) == 0
        assert run(["runs"]) == 0


# --- accept


def accepts(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Kill]:
    """Kills of `qrprof swaps accept`, each in a folder where nothing was accepted before."""
    root = workplace(folder, patch)
    name = verified(root).name
    command = Command((*QRPROF, "swaps", "accept", name, "--yes"), root, os.environ)
    took = command.whole()
    while True:
        for used in (root, folder / "config"):
            shutil.rmtree(used)
        verified(workplace(folder, patch))
        at_s, late = command.killed(took)
        found, state = loaded(root), now(root, name).state
        assert found in ([], [name])
        assert state in ("verified", "accepted")
        assert not found or trusted(root)
        command.start().wait()
        assert (loaded(root), now(root, name).state) == ([name], "accepted")
        require_sound(root)
        yield Kill(at_s, took, f"{state}, {'the swap' if found else 'stock'} runs", late)


def require_sound(root: Path) -> None:
    with opened(root) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


# --- optimize


def optimizations(shop: Workshop) -> Iterator[Kill]:
    """Kills of `qrprof optimize`: each optimization is gone on with, killed again, and let end at last."""
    root = shop.folder
    shop.write("train.py", ROUTER.format(rows=2048))
    shop.write("slow.py", SLOW)
    Command((*QRPROF, "trace", "train.py"), root, shop.environment()).whole()
    with chdir(root):
        steadied(root)
    took = optimize(shop, None).whole()
    store, before = root / ".qrprof", root / "before"
    store.rename(before)
    while True:
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(before, store)  # with queries of the holdout that are left
        first = newest(root)
        ended = sources(root, first)
        name: str | None = None
        had: list[str] = []
        for kills_left in reversed(range(KILLS_EACH)):
            at_s, late = optimize(shop, name).killed(took)
            name = newest(root) if newest(root) != first else None
            kept = sources(root, name)
            assert (kept[: len(had)], sources(root, first)) == (had, ended)
            had = kept
            if not (late or kills_left):
                optimize(shop, name).whole()
            if late or not kills_left:
                require_ended(root, had)
            require_sound(root)
            yield Kill(at_s, took, f"{len(kept)} candidates" if name else "nothing", late)
            if late:
                break


def optimize(shop: Workshop, name: str | None) -> Command:
    """Begin an optimization, or go on with one."""
    words = ["--resume", name] if name else ["--target", "aten::_softmax", "--start", "slow.py"]
    return Command(("-c", OPTIMIZE, str(TESTS), *words), shop.folder, shop.environment())


def newest(root: Path) -> str:
    return journal_of(root).optimizations()[0].id


def sources(root: Path, name: str | None) -> list[str]:
    """Of the candidates that were judged, the first one first."""
    return [one.proposal.source for one in journal_of(root).candidates(name)] if name else []


def require_ended(root: Path, had: list[str]) -> None:
    """The newest optimization has come to an end, with all that it had before."""
    last = journal_of(root).optimizations()[0]
    assert last.ended is not None
    assert last.ended["end"] == "exhausted"
    assert sources(root, last.id)[: len(had)] == had
