"""Decisions that are killed, and two that are made at once: the program is stock, or the swap is accepted whole."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from swap_cases import SOURCE, accepted, by, loaded, now, verified, workplace

from qrprof.planner.swaps import decide
from qrprof.planner.swaps.records import KeptSwap


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return workplace(tmp_path, monkeypatch)


KILLED = """
import json, os, shutil, signal, sys
from pathlib import Path
from datetime import UTC, datetime
from qrprof.kernels import loading
from qrprof.planner.swaps import decide, store
from qrprof.planner.swaps.decide import Deciding
from qrprof.planner.swaps.publish import swaps_file
from qrprof.planner.ledger import opened

EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.chmod", "sqlite3.connect", "fcntl.flock")
top, what = Path(sys.argv[1]), sys.argv[2]
here, now = decide.here(), datetime.now(UTC)
left = -1

def count(event, args):
    global left
    if left < 0 or event not in EVENTS:
        return
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1

sys.addaudithook(count)

def do(root):
    global left
    left = at
    by = Deciding(root, "ada", now)
    with opened(root) as connection:
        (kept,) = store.listed(connection)
        source = store.source_of(connection, kept.swap.sha256)
    if what == "accept":
        decide.accept(by, kept, source, "the gate passed it")
    else:
        decide.leave(by, kept, "undone", "taken back")

def look(root):
    found = loading.load(swaps_file(root)) if swaps_file(root).exists() else loading.Loaded()
    return [swap.name for swap in found.swaps]

def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(json.dumps({"error": repr(error)}), flush=True)
            os._exit(9)
        os._exit(0)
    return os.waitpid(pid, 0)[1]

def tell(root, killed):
    before = look(root)
    decide.refresh(Deciding(root, "ada", now), here)
    with opened(root) as connection:
        (kept,) = store.listed(connection)
    print(json.dumps({"killed": killed, "before": before, "after": look(root), "state": kept.state}), flush=True)

at = 0
while True:
    shutil.copytree(top / "start", top / "try")
    os.environ["QRPROF_CONFIG"] = str(top / "try" / "config")
    ended = child(lambda: do(top / "try" / "work"))
    killed = os.WIFSIGNALED(ended)
    child(lambda: tell(top / "try" / "work", killed))
    shutil.rmtree(top / "try")
    if not killed:
        break
    at += 1
"""


def ends(tmp_path: Path, what: str) -> list[dict[str, object]]:
    """What is loaded after a decision that is killed at each of its files in turn, and at last not at all."""
    child = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), what],
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    found = [json.loads(line) for line in child.stdout.splitlines()]
    assert [one for one in found if "error" in one] == []
    assert len(found) > 10
    assert [one["killed"] for one in found] == [True] * (len(found) - 1) + [False]
    return found


def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[Path], KeptSwap]) -> str:
    """A folder and a configuration as they are before; trust is of the place where they are tried."""
    (tmp_path / "try" / "work").mkdir(parents=True)
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "try" / "config"))
    kept = made(tmp_path / "try" / "work")
    (tmp_path / "try").rename(tmp_path / "start")
    return kept.name


@pytest.mark.slow
def test_an_accept_that_is_killed_anywhere_leaves_stock_or_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = start(tmp_path, monkeypatch, verified)
    found = ends(tmp_path, "accept")
    for one in found:
        assert one["before"] in ([], [name])
        assert one["after"] == ([name] if one["state"] == "accepted" else [])
        assert one["state"] in ("verified", "accepted")
    assert (found[0]["after"], found[-1]["before"]) == ([], [name])


@pytest.mark.slow
def test_an_undo_that_is_killed_anywhere_leaves_all_of_it_or_stock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = start(tmp_path, monkeypatch, accepted)
    found = ends(tmp_path, "undo")
    assert found[0]["before"] == [name]
    for earlier, later in pairwise(found):
        assert later["before"] in ([], earlier["before"])
    for one in found:
        assert one["after"] == one["before"]
        assert one["state"] in ("accepted", "undone")
    assert (found[-1]["after"], found[-1]["state"]) == ([], "undone")


def accept_twice(root: Path) -> list[tuple[int, str]]:
    words = [sys.executable, "-m", "qrprof", "swaps", "accept", "_softmax", "--yes"]
    both = [
        subprocess.Popen(
            words, cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    return [(process.returncode, err) for process in both for _, err in [process.communicate()]]


def test_two_accepts_at_once_are_one(root: Path) -> None:
    kept = verified(root)
    for code, err in accept_twice(root):
        assert code == 0 or "another qrprof has decided" in err
        assert "Traceback" not in err
    assert loaded(root) == [kept.name]
    assert [one.state for one in now(root, kept.name).changes] == ["verified", "accepted"]


def test_a_decision_waits_for_no_process_that_has_died(root: Path) -> None:
    kept = verified(root)
    held = "import sys, time; from pathlib import Path; from qrprof.planner.swaps.publish import deciding\n"
    held += "with deciding(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    holder = subprocess.Popen([sys.executable, "-c", held, str(root)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.communicate()
    decide.accept(by(root), kept, SOURCE, "the gate passed it")
    assert loaded(root) == [kept.name]
