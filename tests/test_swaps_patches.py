"""A patch of the user's own file as a swap: what was shown is applied, and the file says what became of it."""

from pathlib import Path

import pytest
from swap_cases import by, now, workplace

from qrprof.kernels import trust
from qrprof.planner.ledger import opened
from qrprof.planner.patches.patch import made
from qrprof.planner.swaps import patching, store
from qrprof.planner.swaps.publish import swaps_file
from qrprof.tui.cli import run

TRAIN = b"loader = DataLoader(data)\r\nfor batch in loader:\r\n    step(batch)\r\n"
FASTER = TRAIN.replace(b"(data)", b"(data, num_workers=4)")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = workplace(tmp_path, monkeypatch)
    monkeypatch.chdir(found)
    return found


def proposed(root: Path) -> str:
    """The name of a patch of train.py, as it is proposed where a run waits for its data."""
    patch = made("train.py", TRAIN, FASTER, "4 workers", "the device waits for data")
    with opened(root) as connection:
        change = by(root).change("proposed", "found")
        return store.propose(connection, patching.proposal(patch, ""), patch.diff, change).name


@pytest.fixture
def patch(root: Path) -> str:
    (root / "train.py").write_bytes(TRAIN)
    return proposed(root)


def test_a_patch_is_what_was_shown_and_is_taken_back_to_the_byte(
    root: Path, patch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["swaps", "accept", patch, "--yes"]) == 0
    assert "+loader = DataLoader(data, num_workers=4)" in capsys.readouterr().out
    assert (root / "train.py").read_bytes() == FASTER
    assert now(root, patch).state == "accepted"
    assert (swaps_file(root).exists(), trust.trusted(root.resolve())) == (False, frozenset())
    assert run(["swaps", "undo", patch]) == 0
    assert (root / "train.py").read_bytes() == TRAIN
    assert now(root, patch).state == "undone"


def test_a_patch_fits_the_file_that_it_was_made_of_alone(root: Path, patch: str) -> None:
    (root / "train.py").write_bytes(TRAIN + b"print()\n")
    assert run(["swaps", "accept", patch, "--yes"]) == 3
    assert now(root, patch).state == "stale"
    assert (root / "train.py").read_bytes() == TRAIN + b"print()\n"
    (root / "train.py").write_bytes(TRAIN)
    assert run(["swaps", "accept", patch, "--yes"]) == 0
    assert (root / "train.py").read_bytes() == FASTER


def test_a_patch_behind_a_link_is_never_applied(root: Path, tmp_path: Path, patch: str) -> None:
    (root / "train.py").rename(tmp_path / "elsewhere.py")
    (root / "train.py").symlink_to(tmp_path / "elsewhere.py")
    assert run(["swaps", "accept", patch, "--yes"]) == 3
    assert (tmp_path / "elsewhere.py").read_bytes() == TRAIN


def test_the_file_says_whether_a_patch_is_applied(root: Path, patch: str, capsys: pytest.CaptureFixture[str]) -> None:
    for content, state in ((TRAIN, "undone"), (b"print()\n", "stale")):
        assert run(["swaps", "accept", patch, "--yes"]) == 0
        (root / "train.py").write_bytes(content)
        assert run(["swaps", "list"]) == 0
        assert f"{patch} is {state}: " in capsys.readouterr().err
        assert now(root, patch).state == state
        (root / "train.py").write_bytes(TRAIN)
    assert (proposed(root), now(root, patch).state) == (patch, "proposed")


def test_an_accept_that_was_killed_once_the_file_was_changed_is_made_again(root: Path, patch: str) -> None:
    (root / "train.py").write_bytes(FASTER)
    assert run(["swaps", "accept", patch, "--yes"]) == 0
    assert ((root / "train.py").read_bytes(), now(root, patch).state) == (FASTER, "accepted")


def test_a_rejected_patch_stays_rejected_and_one_that_is_applied_is_taken_back(root: Path, patch: str) -> None:
    assert run(["swaps", "accept", patch, "--yes"]) == 0
    assert run(["swaps", "reject", patch]) == 0
    assert (root / "train.py").read_bytes() == TRAIN
    assert run(["swaps", "list"]) == 0
    assert now(root, patch).state == "rejected"
