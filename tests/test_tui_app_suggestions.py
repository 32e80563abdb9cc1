"""The suggestions view: what is shown before a person decides."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from swap_cases import NOW, SOURCE, accepted, by, now, verified
from textual.content import Content
from textual.widgets import Static
from tui_runs import SIZES, Driver, add_example, calm, check
from tui_suggestions import OTHER, of_optimization, on_suggestions, states

from qrprof.planner import predictions
from qrprof.planner.estimate import Basis, Estimate
from qrprof.planner.ledger import opened
from qrprof.planner.predictions import forecast
from qrprof.planner.swaps import proposals, store
from qrprof.profiler.runinfo import read_run_info
from qrprof.tui.app.actions import SUGGESTIONS, actions_of
from qrprof.tui.app.glyphs import Glyphs


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    calm(monkeypatch, tmp_path)
    return tmp_path


# --- what is shown


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "{}x{}".format(*size))
def test_all_of_them(root: Path, size: tuple[int, int]) -> None:
    verified(root)
    accepted(root, OTHER)
    verified(root, SOURCE.replace("weights", "x"), outcome="FAIL")

    async def script(driver: Driver) -> None:
        check(driver.screen, "suggestions-{}x{}".format(*size))

    on_suggestions(root, script, size)


def test_one_with_its_evidence_and_its_whole_source(root: Path) -> None:
    verified(root)
    screens = []

    async def script(driver: Driver) -> None:
        await driver.press("enter")
        await driver.settle()
        screens.append(driver.screen)
        await driver.press("escape", "a")
        await driver.settle()
        screens.append(driver.screen)
        await driver.press("escape", "enter", "Y")
        await driver.settle()
        assert SOURCE in driver.app.clipboard

    on_suggestions(root, script, (120, 40))
    check(screens[0], "suggestion-120x40")
    check(screens[1], "suggestion-asked-120x40")


def test_where_there_is_none_it_says_so_and_makes_no_ledger(root: Path) -> None:
    async def script(driver: Driver) -> None:
        assert "there is none yet" in driver.screen
        await driver.press("a")
        await driver.settle()
        assert driver.said[-1] == "accept: there is no suggestion yet"
        assert not (root / ".qrprof").exists()

    on_suggestions(root, script)


def test_a_run_that_calls_qr_has_the_included_kernels(root: Path) -> None:
    async def script(driver: Driver) -> None:
        assert states(driver) == {"qr": "proposed"}
        await driver.press("a")
        await driver.settle()
        assert "there is no verdict of the gate on it; v: have it judged" in driver.said[-1]
        await driver.press("v")
        await driver.settle()
        assert driver.said[-1] == "the terminal cannot be handed over; type: qrprof swaps accept qr"

    on_suggestions(root, script, folder=add_example(root))


def test_what_was_judged_of_an_older_qrprof_is_proposed_as_it_is_now(root: Path) -> None:
    old = proposals.of_library("included", "qr")
    assert old.entry is not None
    old = replace(old, sha256="ab" * 32, entry=replace(old.entry, sha256="ab" * 32))
    with opened(root) as connection:
        store.propose(connection, old, None, by(root).change("verified", "the gate: PASS"))

    async def script(driver: Driver) -> None:
        assert states(driver) == {"qr": "proposed"}
        assert now(root, "qr").changes[-1].why == "qrprof's own source has changed"

    on_suggestions(root, script)


def test_text_that_means_harm_is_spelled_out(root: Path) -> None:
    verified(root, SOURCE + "# [/] k[red]z \x1b[2J \u202e\n", findings=())

    async def script(driver: Driver) -> None:
        await driver.press("a")
        await driver.settle()
        assert r"# [/] k[red]z \x1b[2J \u202e" in driver.screen
        assert "\x1b" not in driver.screen

    on_suggestions(root, script, (120, 40))


def test_without_glyphs_it_is_ascii(root: Path) -> None:
    verified(root)

    async def script(driver: Driver) -> None:
        for key in ("enter", "escape", "b", "escape", "a", "escape", "d", "escape"):
            await driver.press(key)
            await driver.settle()
            assert driver.screen.isascii(), driver.screen

    on_suggestions(root, script, glyphs=Glyphs(ascii=True))


@pytest.mark.parametrize("size", [SIZES[0], SIZES[-1]], ids=lambda size: "{}x{}".format(*size))
def test_every_key_where_there_is_one(root: Path, size: tuple[int, int]) -> None:
    kept = accepted(root)

    async def script(driver: Driver) -> None:
        for action in actions_of(SUGGESTIONS):
            if action.id == "quit":
                continue
            await driver.press("6", action.key.split(",")[0])
            await driver.settle()
            await driver.press("escape", "escape")
            await driver.settle()
            assert driver.app.screen is driver.app.screen_stack[0], action.id
        assert now(root, kept.name).state == "accepted"

    on_suggestions(root, script, size)


def is_dim(driver: Driver, words: str) -> bool:
    """Whether these words of the last line are drawn as what cannot be done now."""
    (keys,) = driver.app.screen.query("#keys").results(Static)
    found = keys.visual
    assert isinstance(found, Content)
    return found.get_style_at_offset(found.plain.index(words)).dim is True


@pytest.mark.parametrize(("outcome", "grey"), [("PASS", ["z undo"]), ("FAIL", ["a accept", "z undo"])])
def test_what_cannot_be_done_is_grey(root: Path, outcome: Any, grey: list[str]) -> None:
    verified(root, outcome=outcome)

    async def script(driver: Driver) -> None:
        assert [words for words in ("a accept", "d reject", "z undo") if is_dim(driver, words)] == grey

    on_suggestions(root, script)


# --- what it was made from


def test_what_was_changed_in_the_file_it_was_made_from(root: Path) -> None:
    of_optimization(root)

    async def script(driver: Driver) -> None:
        await driver.press("b")
        await driver.until(lambda: "--- starting file" in driver.screen)
        assert "-def candidate(a, b): ..." in driver.screen
        assert "+def candidate(self, dim, half_to_float):" in driver.screen
        await driver.press("b")
        await driver.until(lambda: "verdict   PASS" in driver.screen)

    on_suggestions(root, script)


def test_more_or_less_may_stand_around_each_change(root: Path) -> None:
    first, *rest = SOURCE.splitlines()
    of_optimization(root, "\n".join([first.replace("dim", "axis"), "    # gone", *rest]) + "\n")
    pictures = []

    async def script(driver: Driver) -> None:
        await driver.press("}")
        await driver.settle()
        assert driver.said[-1] == "more around: b shows what was changed"
        await driver.press("b")
        await driver.until(lambda: "-    # gone" in driver.screen)
        assert rest[1] in driver.screen
        driver.app.clear_notifications()
        await driver.settle()
        pictures.append(driver.app.export_screenshot())
        for _ in range(2):
            await driver.press("{")
        await driver.until(lambda: rest[1] not in driver.screen)
        assert rest[0] in driver.screen
        for _ in range(5):
            await driver.press("{")
        await driver.until(lambda: rest[0] not in driver.screen)
        await driver.press("}")
        await driver.until(lambda: rest[0] in driver.screen)

    on_suggestions(root, script)
    check(pictures[0], "changes.svg")  # for eyes


def test_of_a_file_of_ones_own_it_is_not_known(root: Path) -> None:
    verified(root)

    async def script(driver: Driver) -> None:
        await driver.press("b")
        await driver.until(lambda: "it is not known what it was made from" in driver.screen)

    on_suggestions(root, script)


# --- predicted and measured


@pytest.mark.parametrize(
    ("step_ns", "shown"), [(None, "–"), (20_000_000, "20.0 ms"), (39_000_000, "39.0 ms, no change")]
)
def test_predicted_stands_beside_measured(root: Path, step_ns: int | None, shown: str) -> None:
    run = read_run_info(add_example(root, "example-block_soap") / "run.json")
    told = forecast(run, "swaps", "x", 39_400_000, Estimate(18e6, 20e6, 22e6, Basis.MEASURED))
    kept = verified(root)
    with opened(root) as connection:
        predictions.remember(connection, [told], NOW)
        if step_ns:
            predictions.measured(connection, 1, run.id, step_ns, 0.01, datetime.now(UTC))
        swap = replace(kept, swap=replace(kept.swap, prediction=1))
        store.change(connection, [(swap, by(root).change("verified", "with a prediction", kept.changes[0].verdict))])

    async def script(driver: Driver) -> None:
        assert driver.column("predicted step") == ["39.4 ms -> 18.0 ms to 22.0 ms"]
        assert driver.column("measured") == [shown]
        await driver.press("enter")
        await driver.settle()
        by_run = (
            "noise 1.0 %, by example-block_soap: n = 124 unprofiled steps, median 39.3 ms, p05 37.0 ms, p95 42.2 ms"
        )
        assert f"measured {shown}{f'; {by_run}' if step_ns else ''}" in " ".join(driver.screen.replace("↪", "").split())

    on_suggestions(root, script, (200, 60))
