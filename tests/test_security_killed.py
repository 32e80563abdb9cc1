"""kill -9 at random moments: what was saved is there to the byte, and nothing half-written is taken for whole."""

from pathlib import Path
from typing import Any

import pytest
from kill_cases import TRACE, accepts, imports, optimizations, require_whole, traces, until_struck

from qrprof.profiler.store import run_folders

FEW, MANY = 4, 16

Kills = pytest.mark.parametrize("kills", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])


@pytest.mark.parametrize(
    ("kills", "alone"),
    [
        (2, False),
        pytest.param(MANY, False, marks=pytest.mark.slow),
        pytest.param(6, True, marks=pytest.mark.slow),
    ],
)
def test_a_trace_that_is_killed_leaves_a_whole_run_or_none(kills: int, alone: bool, workshop: Any) -> None:
    until_struck(traces(workshop, alone), kills)
    runs = len(list(run_folders(workshop.folder)))
    assert workshop.python("-m", "qrprof", "trace", "train.py").code == 0
    assert len(list(run_folders(workshop.folder))) == runs + 1


@Kills
def test_an_import_that_is_killed_leaves_a_whole_run_or_none(kills: int, workshop: Any) -> None:
    found = until_struck(imports(workshop), kills)
    whole = [kill for kill in found if kill.left == "a whole run"]
    assert len(list(run_folders(workshop.folder))) == 1 + len(whole)


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


def test_an_import_that_is_killed_at_any_of_its_files(workshop: Any) -> None:
    ended = workshop.python("-c", DIES, str(TRACE))
    assert ended.code == 0
    deaths = int(ended.out.splitlines()[-1])
    assert deaths > 5
    runs = list(run_folders(workshop.folder))
    require_whole(workshop.folder, runs)
    assert 2 <= len(runs) <= 2 + deaths


@Kills
def test_an_accept_that_is_killed_leaves_stock_or_all_of_it(
    kills: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = until_struck(accepts(tmp_path, monkeypatch), kills)
    whole = {"verified, stock runs", "accepted, stock runs", "accepted, the swap runs"}
    assert {kill.left for kill in found} <= whole


@pytest.mark.slow
def test_an_optimization_that_is_killed_goes_on_with_all_that_it_had(workshop: Any) -> None:
    found = until_struck(optimizations(workshop), 6)
    assert [kill.late for kill in found].count(False) == 6
