"""Patches as swaps: proposed for a run, accepted by applying them, undone, and what hands of others do in between."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from conftest import Workshop

from qrprof.planner.ledger import opened
from qrprof.planner.patches.patch import Patch, made
from qrprof.planner.swaps import patching, store
from qrprof.planner.swaps.decide import Deciding
from qrprof.planner.swaps.records import KeptSwap
from qrprof.profiler.errors import QrprofError

BEFORE, AFTER = b"a = 1\n", b"a = 2\n"


@pytest.fixture
def by(tmp_path: Path) -> Deciding:
    (tmp_path / "train.py").write_bytes(BEFORE)
    return Deciding(tmp_path, "somebody", datetime.now(UTC))


@pytest.fixture
def patch() -> Patch:
    return made("train.py", BEFORE, AFTER, "two", "one is too few")


def proposed(by: Deciding, patch: Patch) -> KeptSwap:
    with opened(by.root) as connection:
        found = patching.proposal(patch, "a-run")
        return store.propose(connection, found, patch.diff, by.change("proposed", "a run speaks for it"))


def now(by: Deciding, kept: KeptSwap) -> KeptSwap:
    with opened(by.root) as connection:
        return store.find(connection, kept.name)


def test_accepted_is_applied_and_undone_is_taken_back(by: Deciding, patch: Patch) -> None:
    kept = proposed(by, patch)
    assert (kept.state, kept.swap.run_id, kept.swap.patch and kept.swap.patch.title) == ("proposed", "a-run", "two")
    with opened(by.root) as connection:
        diff = store.source_of(connection, kept.swap.sha256)
    assert diff == patch.diff
    patching.accept(by, kept, diff)
    assert ((by.root / "train.py").read_bytes(), now(by, kept).state) == (AFTER, "accepted")
    assert proposed(by, patch).state == "accepted"
    patching.take_back(by, now(by, kept), diff, "undone", "taken back")
    assert ((by.root / "train.py").read_bytes(), now(by, kept).state) == (BEFORE, "undone")
    assert patching.settle(by) == []


def test_rejected_the_file_stays(by: Deciding, patch: Patch) -> None:
    kept = proposed(by, patch)
    patching.take_back(by, kept, patch.diff, "rejected", "not wanted")
    assert ((by.root / "train.py").read_bytes(), proposed(by, patch).state) == (BEFORE, "rejected")


def test_what_was_killed_in_between_is_done_by_the_same_command(by: Deciding, patch: Patch) -> None:
    kept = proposed(by, patch)
    (by.root / "train.py").write_bytes(AFTER)  # as far as it came
    assert (patching.settle(by), now(by, kept).state) == ([], "proposed")
    patching.accept(by, kept, patch.diff)
    assert ((by.root / "train.py").read_bytes(), now(by, kept).state) == (AFTER, "accepted")
    (by.root / "train.py").write_bytes(BEFORE)
    patching.take_back(by, now(by, kept), patch.diff, "undone", "taken back")
    assert ((by.root / "train.py").read_bytes(), now(by, kept).state) == (BEFORE, "undone")


@pytest.mark.parametrize(("content", "state"), [(BEFORE, "undone"), (b"a = 3\n", "stale"), (None, "stale")])
def test_a_file_that_was_changed_by_hand(by: Deciding, patch: Patch, content: bytes | None, state: str) -> None:
    kept = proposed(by, patch)
    patching.accept(by, kept, patch.diff)
    (by.root / "train.py").write_bytes(content) if content else (by.root / "train.py").unlink()
    (line,) = patching.settle(by)
    assert line.startswith(f"{kept.name} is {state}: train.py ")
    assert now(by, kept).state == state


def test_a_changed_file_is_not_patched(by: Deciding, patch: Patch) -> None:
    kept = proposed(by, patch)
    (by.root / "train.py").write_bytes(b"a = 3\n")
    with pytest.raises(QrprofError, match=r"train\.py is left as it is"):
        patching.accept(by, kept, patch.diff)
    assert ((by.root / "train.py").read_bytes(), now(by, kept).state) == (b"a = 3\n", "proposed")
    patching.settle(by)
    assert now(by, kept).state == "stale"


def test_two_decisions_at_once(by: Deciding, patch: Patch) -> None:
    kept = proposed(by, patch)
    patching.take_back(by, kept, patch.diff, "rejected", "not wanted")
    with pytest.raises(QrprofError, match="another qrprof has decided"):
        patching.accept(by, kept, patch.diff)
    assert (by.root / "train.py").read_bytes() == BEFORE


TRAIN = """\
import time, torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self): return 320
    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.full((8,), float(i))

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x in DataLoader(Numbers(), batch_size=8):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_from_the_trace_to_the_changed_file_and_back(workshop: Workshop) -> None:
    def qrprof(*arguments: str) -> str:
        ended = workshop.python("-m", "qrprof", *arguments, QRPROF_CONFIG=str(workshop.folder / "config"))
        assert ended.code == 0, ended.err
        return ended.out

    script = workshop.write("train.py", TRAIN)
    qrprof("trace", "train.py")
    (swap,) = json.loads(qrprof("swaps", "list", "--json"))["swaps"]
    assert (swap["kind"], swap["state"]) == ("patch", "proposed")
    assert "+for x in DataLoader(Numbers(), batch_size=8, num_workers=4):" in qrprof("swaps", "show", swap["name"])
    qrprof("swaps", "accept", swap["name"], "--yes")
    assert script.read_text() == TRAIN.replace("batch_size=8", "batch_size=8, num_workers=4")
    assert workshop.python("train.py").code == 0
    qrprof("swaps", "undo", swap["name"])
    assert script.read_text() == TRAIN
