"""kill -9 at random moments: what was saved is there to the byte, and nothing half-written is taken for whole."""

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from swap_cases import loaded, now, verified, workplace
from test_optimize_end_to_end import ROUTER, SLOW, steadied

from qrprof.kernels.trust import trusted
from qrprof.planner.ledger import opened
from qrprof.planner.optimize.journal import journal_of
from qrprof.profiler.load import load_run, ranks
from qrprof.profiler.store import run_folders
from qrprof.tui.cli import run

TRACE = Path(__file__).parent / "data" / "own_h200_mlp_eager.json.gz"
BODY = "for _ in range(60):\n    step()\n    torch.linalg.qr(torch.randn(8, 8))\n"
FEW, MANY = 4, 16

Kills = pytest.mark.parametrize("kills", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])


def killed_at_random(
    words: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    within_s: float,
    alone: bool = False,
    program: Sequence[str] = ("-m", "qrprof"),
) -> None:
    """Start `qrprof WORDS`, and kill it at a random moment; unless `alone`, all its children too."""
    process = subprocess.Popen(
        [sys.executable, *program, *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(random.uniform(0, within_s))
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for child in children if not alone else ():
        with suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children)
    process.wait()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def require_whole(root: Path) -> int:
    """All that is taken for a run can be read and ranked; how many there are."""
    found = list(run_folders(root))
    for folder in found:
        for rank in ranks(folder):
            record, trace = load_run(folder, rank)
            assert (record.id, trace.warnings, len(trace.events) > 0) == (folder.name, (), True)
        assert run(["rank", folder.name]) == 0
    assert run(["runs"]) == 0
    return len(found)


@pytest.fixture
def timed(workshop: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str]], float]:
    """Runs a command whole in the workshop, and says how long it took."""
    monkeypatch.chdir(workshop.folder)

    def whole(words: Sequence[str]) -> float:
        begun = time.monotonic()
        assert workshop.python("-m", "qrprof", *words).code == 0
        return time.monotonic() - begun

    return whole


@pytest.mark.parametrize(
    ("kills", "alone"),
    [
        (2, False),
        pytest.param(MANY, False, marks=pytest.mark.slow),
        pytest.param(6, True, marks=pytest.mark.slow),
    ],
)
def test_a_trace_that_is_killed_leaves_a_whole_run_or_none(
    kills: int, alone: bool, workshop: Any, timed: Callable[[Sequence[str]], float]
) -> None:
    workshop.write("train.py", workshop.setup + BODY)
    took = timed(["trace", "train.py"])
    (first,) = run_folders(workshop.folder)
    assert require_whole(workshop.folder) == 1
    before = contents(first)
    for _ in range(kills):
        killed_at_random(["trace", "train.py"], workshop.folder, workshop.environment(), took, alone)
    assert 1 <= require_whole(workshop.folder) <= 1 + kills
    assert contents(first) == before
    timed(["trace", "train.py"])


@Kills
def test_an_import_that_is_killed_leaves_a_whole_run_or_none(
    kills: int, workshop: Any, timed: Callable[[Sequence[str]], float]
) -> None:
    took = timed(["import", str(TRACE)])
    (first,) = run_folders(workshop.folder)
    before = contents(first)
    for _ in range(kills):
        killed_at_random(["import", str(TRACE)], workshop.folder, workshop.environment(), took)
    assert 1 <= require_whole(workshop.folder) <= 1 + kills
    assert contents(first) == before


# Imports a file and dies when it is about to touch its n-th file.
DIES = """
import os, signal, sys
from qrprof.tui.cli import run

left = -1
def count(event, args):
    global left
    if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.chmod") and left >= 0:
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
assert run(["import", sys.argv[1]]) == 0  # imports all that it needs
at = 0
while True:
    pid = os.fork()
    if pid == 0:
        left = at
        os._exit(run(["import", sys.argv[1]]))
    if not os.WIFSIGNALED(os.waitpid(pid, 0)[1]):
        break
    at += 1
print(at)
"""


def test_an_import_that_is_killed_at_any_of_its_files(workshop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workshop.folder)
    ended = workshop.python("-c", DIES, str(TRACE))
    assert ended.code == 0
    deaths = int(ended.out.splitlines()[-1])
    assert deaths > 5
    assert 2 <= require_whole(workshop.folder) <= 2 + deaths


@Kills
def test_an_accept_that_is_killed_leaves_stock_or_all_of_it(
    kills: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = workplace(tmp_path, monkeypatch)
    name = verified(root).name
    accept = ["swaps", "accept", name, "--yes"]
    begun = time.monotonic()
    subprocess.run([sys.executable, "-m", "qrprof", *accept], cwd=root, check=True, capture_output=True)
    took = time.monotonic() - begun
    for _ in range(kills):
        shutil.rmtree(root)
        shutil.rmtree(tmp_path / "config")
        verified(workplace(tmp_path, monkeypatch))
        killed_at_random(accept, root, os.environ, took)
        found, state = loaded(root), now(root, name).state
        assert found in ([], [name])
        assert state in ("verified", "accepted")
        assert not found or trusted(root)
        subprocess.run([sys.executable, "-m", "qrprof", *accept], cwd=root, check=False, capture_output=True)
        assert (loaded(root), now(root, name).state) == ([name], "accepted")
        with opened(root) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


# The command, with a gate whose clock is scripted.
OPTIMIZES = """
import sys
sys.path.insert(0, sys.argv[1])
from test_optimize_end_to_end import Scripted
from qrprof.planner.optimize import pool
from qrprof.tui.cli import run

pool.LocalPool = Scripted
sys.exit(run(["optimize", *sys.argv[2:]]))
"""


def sources(root: Path, optimization: str) -> list[str]:
    return [one.proposal.source for one in journal_of(root).candidates(optimization)]


@pytest.mark.slow
def test_an_optimization_that_is_killed_goes_on_with_all_that_it_had(
    workshop: Any, timed: Callable[[Sequence[str]], float]
) -> None:
    root = workshop.folder
    workshop.write("train.py", ROUTER.format(rows=2048))
    workshop.write("slow.py", SLOW)
    timed(["trace", "train.py"])
    steadied(root)
    program = ("-c", OPTIMIZES, str(Path(__file__).parent))
    begin = ["--target", "aten::_softmax", "--start", "slow.py"]
    begun = time.monotonic()
    assert workshop.python(*program, *begin).code == 0
    took = time.monotonic() - begun
    (whole,) = journal_of(root).optimizations()
    found = sources(root, whole.id)

    def next_words() -> list[str]:
        others = [one for one in journal_of(root).optimizations() if one.id != whole.id]
        return ["--resume", others[0].id] if others else begin

    had: list[str] = []
    for _ in range(6):
        killed_at_random(next_words(), root, workshop.environment(), took, program=program)
        words = next_words()
        kept = sources(root, words[1]) if words != begin else []
        assert kept[: len(had)] == had
        had = kept
    assert workshop.python(*program, *next_words()).code == 0
    assert sources(root, whole.id) == found
    last = next(one for one in journal_of(root).optimizations() if one.id != whole.id)
    assert (last.ended is not None, sources(root, last.id)[: len(had)]) == (True, had)
    with opened(root) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
