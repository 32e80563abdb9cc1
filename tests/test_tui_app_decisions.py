"""The suggestions view: what each decision of a person comes to, on kernels and on files of their own."""

import re
from pathlib import Path

import pytest
from swap_cases import SOURCE, accepted, by, loaded, now, verified
from textual.widgets import Input
from tui_runs import Driver, calm
from tui_suggestions import OTHER, agreeing, of_optimization, on_suggestions, states

from qrprof.kernels.swapfile import candidate_file
from qrprof.kernels.trust import trusted
from qrprof.planner.ledger import opened
from qrprof.planner.optimize.journal import journal_of
from qrprof.planner.patches.patch import made
from qrprof.planner.swaps import decide, patching, store
from qrprof.planner.swaps.publish import swaps_file
from qrprof.planner.swaps.records import KeptSwap
from qrprof.tui.app.views.agree import AGREE


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    calm(monkeypatch, tmp_path)
    return tmp_path


# --- decisions


def test_it_is_accepted_by_a_key_of_its_own_and_by_no_other(root: Path) -> None:
    kept = verified(root)
    verified(root, OTHER, outcome="FAIL")

    async def script(driver: Driver) -> None:
        driver.app.suggestions.first.go_to(kept.name)
        await driver.settle()
        for key in ("escape", "enter"):
            await driver.press("a")
            await driver.settle()
            assert agreeing(driver)
            assert "Once accepted, this code runs inside your" in driver.screen
            await driver.press(key, "escape")
            await driver.settle()
        assert now(root, kept.name).state == "verified"
        assert not swaps_file(root).exists()
        await driver.press("a")
        await driver.settle()
        await driver.press("A")
        await driver.until(lambda: states(driver)[kept.name] == "accepted")
        assert driver.said == [f"{kept.name} is accepted: `qrprof run` loads it; z takes it back"]
        assert "measure it: qrprof verify SCRIPT" in driver.screen
        assert driver.app.suggestions.first.selected != kept.name  # on to the next that is undecided

    on_suggestions(root, script)
    assert loaded(root) == [kept.name]
    assert trusted(root.resolve())
    assert candidate_file(swaps_file(root), kept.swap.sha256).read_text() == SOURCE


def test_the_mouse_agrees_too(root: Path) -> None:
    kept = verified(root)

    async def script(driver: Driver) -> None:
        line, place = next((y, text.index("a accept")) for y, text in enumerate(driver.lines) if "a accept" in text)
        await driver.pilot.click(offset=(place + 2, line))
        await driver.settle()
        assert agreeing(driver)
        assert now(root, kept.name).state == "verified"  # one click changes nothing
        line, place = next((y, text.index(AGREE)) for y, text in enumerate(driver.lines) if AGREE in text)
        await driver.pilot.click(offset=(place + 2, line))
        await driver.until(lambda: states(driver)[kept.name] == "accepted")

    on_suggestions(root, script)


def test_what_changed_while_it_was_shown_is_not_accepted(root: Path) -> None:
    kept = verified(root)

    async def script(driver: Driver) -> None:
        await driver.press("a")
        await driver.settle()
        decide.leave(by(root), kept, "rejected", "by another window")
        await driver.press("A")
        await driver.until(lambda: bool(driver.said))
        assert f"another qrprof has decided on swap {kept.name}" in driver.said[-1]
        await driver.until(lambda: states(driver)[kept.name] == "rejected")

    on_suggestions(root, script)
    assert not trusted(root.resolve())


def test_against_the_evidence_it_takes_a_reason_that_is_kept(root: Path) -> None:
    kept = verified(root, outcome="FAIL")

    async def script(driver: Driver) -> None:
        await driver.press("a")
        await driver.settle()
        assert re.search("accept: its verdict .* is FAIL", driver.said[-1])
        await driver.press("O", "enter")
        await driver.settle()
        assert not agreeing(driver)
        await driver.press("O")
        await driver.type("it is mine")
        await driver.press("enter")
        await driver.settle()
        assert agreeing(driver)
        assert driver.said == []  # no message lies over it
        assert "The evidence is not enough" in driver.screen
        await driver.press("A")
        await driver.until(lambda: states(driver)[kept.name] == "accepted")

    on_suggestions(root, script)
    assert now(root, kept.name).changes[-1].override == "it is mine"


@pytest.mark.parametrize(("typed", "why"), [("too wide", "too wide"), ("", "not wanted")])
def test_one_is_rejected_for_a_reason_and_stays_in_sight(root: Path, typed: str, why: str) -> None:
    kept = verified(root)

    async def script(driver: Driver) -> None:
        await driver.press("d", "escape")
        await driver.settle()
        assert not isinstance(driver.app.focused, Input)
        assert now(root, kept.name).state == "verified"
        await driver.press("d")
        await driver.type(typed)
        await driver.press("enter")
        await driver.until(lambda: states(driver)[kept.name] == "rejected")
        driver.app.clear_notifications()
        await driver.press("enter")
        await driver.settle()
        assert why in driver.screen
        assert "def candidate" in driver.screen
        await driver.press("escape", "d")
        await driver.settle()
        assert driver.said[-1] == "reject: it is rejected already"

    on_suggestions(root, script)
    assert now(root, kept.name).changes[-1].why == why


def test_why_one_is_rejected_is_a_hint_for_its_optimization(root: Path) -> None:
    kept = of_optimization(root)
    (one,) = journal_of(root).optimizations()

    async def script(driver: Driver) -> None:
        await driver.press("d")
        await driver.type("too wide")
        await driver.press("enter")
        await driver.until(lambda: states(driver)[kept.name] == "rejected")

    on_suggestions(root, script)
    assert journal_of(root).hints(one.id) == ["a person rejected #3: too wide"]


def test_an_accepted_one_is_taken_back(root: Path) -> None:
    kept = accepted(root)

    async def script(driver: Driver) -> None:
        await driver.press("z", "enter")
        await driver.until(lambda: states(driver)[kept.name] == "undone")
        await driver.press("z")
        await driver.settle()
        assert driver.said[-1] == "undo: it is undone, not accepted"

    on_suggestions(root, script)
    assert not trusted(root.resolve())


def test_one_that_changed_since_is_stale(root: Path) -> None:
    kept = accepted(root)

    async def script(driver: Driver) -> None:
        assert states(driver)[kept.name] == "accepted"
        candidate_file(swaps_file(root), kept.swap.sha256).write_text(OTHER)
        await driver.press("1", "6")
        await driver.until(lambda: states(driver)[kept.name] == "stale")
        assert "has changed since" in " ".join(driver.screen.split())

    on_suggestions(root, script)


def test_an_editor_opens_its_file(root: Path) -> None:
    kept = accepted(root)

    async def script(driver: Driver) -> None:
        await driver.press("e")
        await driver.settle()
        assert driver.app.clipboard == f"{candidate_file(swaps_file(root), kept.swap.sha256)}:1"

    on_suggestions(root, script)


# --- changes of one's own files

BEFORE, AFTER = b"loader = DataLoader(data)\n", b"loader = DataLoader(data, num_workers=4)\n"


def patched(root: Path) -> KeptSwap:
    (root / "train.py").write_bytes(BEFORE)
    patch = made("train.py", BEFORE, AFTER, "load beside the step", "the step waits for data")
    with opened(root) as connection:
        return store.propose(connection, patching.proposal(patch, ""), patch.diff, by(root).change("proposed", "a run"))


def test_the_diff_that_is_shown_is_applied_and_taken_back(root: Path) -> None:
    kept = patched(root)

    async def script(driver: Driver) -> None:
        await driver.press("a")
        await driver.settle()
        assert "The diff below changes your file train.py." in driver.screen
        assert "-loader = DataLoader(data)" in driver.screen
        assert "+loader = DataLoader(data, num_workers=4)" in driver.screen
        assert (root / "train.py").read_bytes() == BEFORE
        await driver.press("A")
        await driver.until(lambda: states(driver)[kept.name] == "accepted")
        assert (root / "train.py").read_bytes() == AFTER
        await driver.press("z", "enter")
        await driver.until(lambda: states(driver)[kept.name] == "undone")
        assert (root / "train.py").read_bytes() == BEFORE

    on_suggestions(root, script)


def test_a_file_that_changed_is_not_touched(root: Path) -> None:
    kept = patched(root)

    async def script(driver: Driver) -> None:
        await driver.press("a")
        await driver.settle()
        (root / "train.py").write_bytes(b"mine = 1\n")
        await driver.press("A")
        await driver.until(lambda: states(driver)[kept.name] == "stale")
        assert driver.said

    on_suggestions(root, script)
    assert (root / "train.py").read_bytes() == b"mine = 1\n"
