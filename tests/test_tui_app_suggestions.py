"""The suggestions view: what is shown before a person decides, and what each decision comes to."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from swap_cases import NOW, SOURCE, TASK, accepted, by, loaded, now, verdict_on, verified
from textual.content import Content
from textual.widgets import Input, Static
from tui_optimizations import add_course
from tui_runs import SIZES, Driver, add_example, app_on, calm, check, play

from qrprof.kernels.swapfile import candidate_file
from qrprof.kernels.trust import trusted
from qrprof.planner import predictions
from qrprof.planner.estimate import Basis, Estimate
from qrprof.planner.gate import evidence, task_store
from qrprof.planner.ledger import opened
from qrprof.planner.optimize.journal import journal_of
from qrprof.planner.patches.patch import made
from qrprof.planner.predictions import forecast
from qrprof.planner.swaps import decide, patching, proposals, store
from qrprof.planner.swaps.publish import swaps_file
from qrprof.planner.swaps.records import KeptSwap
from qrprof.profiler.runinfo import read_run_info
from qrprof.tui.app.actions import SUGGESTIONS, actions_of
from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.views.agree import AGREE, Agree
from qrprof.tui.app.views.start import EXAMPLE

Script = Callable[[Driver], Awaitable[None]]
OTHER = SOURCE.replace("weights", "w")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    calm(monkeypatch, tmp_path)
    return tmp_path


def on_suggestions(
    root: Path, script: Script, size: tuple[int, int] = (80, 24), folder: Path = EXAMPLE, **options: Any
) -> None:
    """Run the script once the view is shown."""

    async def opened_view(driver: Driver) -> None:
        await driver.press("6")
        view = driver.app.suggestions
        await driver.until(lambda: view.ready or bool(view.problem))
        await script(driver)

    play(app_on(folder, root, **options), opened_view, size)


def states(driver: Driver) -> dict[str, str]:
    rows = driver.app.suggestions.first.table()[1]
    place = driver.app.suggestions.first.table()[0].index("state")
    return {row[0]: row[place] for row in rows}


def agreeing(driver: Driver) -> bool:
    return isinstance(driver.app.screen, Agree)


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


def test_what_cannot_be_done_is_grey(root: Path) -> None:
    verified(root, outcome="FAIL")

    async def refused(driver: Driver) -> None:
        assert is_dim(driver, "a accept")
        assert not is_dim(driver, "d reject")

    async def offered(driver: Driver) -> None:
        assert not is_dim(driver, "a accept")
        assert is_dim(driver, "z undo")

    on_suggestions(root, refused)
    decide.leave(by(root), verified(root, OTHER), "rejected", "for the other test")
    (root / ".qrprof" / "ledger.sqlite").unlink()
    verified(root)
    on_suggestions(root, offered)


# --- what it was made from


def of_optimization(root: Path, start: str = "def candidate(a, b): ...") -> KeptSwap:
    """A candidate of an optimization that began with another file."""
    scribe = add_course(root, start=start)
    task = task_store.keep(root, TASK)
    verdict = verdict_on(task, SOURCE)
    with opened(root) as connection:
        evidence.keep(connection, evidence.made(verdict, f"{scribe.name}#3", f"{scribe.name}#start", NOW))
        found = proposals.of_file(task, SOURCE, verdict)
        return store.propose(connection, found, SOURCE, by(root).change("verified", "the gate: PASS", verdict.id))


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
        assert f"{kept.name} is accepted" in " ".join(driver.said)
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
