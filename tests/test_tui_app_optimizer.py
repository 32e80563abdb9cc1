"""The optimizer view: what the ledger holds and what comes into it, replays, hints, and the process behind it."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.message import Message
from textual.widgets import Input
from tui_optimizations import BEGAN, Scribe, add_course
from tui_runs import SIZES, Driver, add_example, app_on, calm, check, play

from qrprof.planner.ledger import ledger_file
from qrprof.planner.optimize.records import Event
from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.optimizer_course import KEPT, LINES, LONGEST_PAUSE_S, Course, replay_of
from qrprof.tui.app.views.start import EXAMPLE
from qrprof.tui.app.widgets.grid import Grid

Script = Callable[[Driver], Awaitable[None]]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    calm(monkeypatch, tmp_path)
    return tmp_path


def on_optimizer(
    root: Path,
    script: Script,
    size: tuple[int, int] = (80, 24),
    hook: Callable[[Message], None] | None = None,
    **options: Any,
) -> None:
    """Run the script once the view is shown."""

    async def opened(driver: Driver) -> None:
        await driver.press("5")
        view = driver.app.optimizer
        await driver.until(lambda: view.ready or bool(view.problem))
        await script(driver)

    play(app_on(EXAMPLE, root, **options), opened, size, hook)


def names(driver: Driver) -> list[str]:
    """The candidates that are listed."""
    return [row[0] for row in driver.app.optimizer.first.table()[1]]


def words(driver: Driver) -> str:
    return " ".join(driver.screen.split())


# --- what the ledger holds


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "{}x{}".format(*size))
def test_an_optimization(root: Path, size: tuple[int, int]) -> None:
    add_course(root, target="aten::mm")
    add_course(root)

    async def script(driver: Driver) -> None:
        check(driver.screen, "optimizer-{}x{}".format(*size))

    on_optimizer(root, script, size)


def test_its_last_lines_and_a_source_in_the_pane(root: Path) -> None:
    add_course(root)
    screens = []

    async def script(driver: Driver) -> None:
        await driver.press("l")
        await driver.settle()
        screens.append(driver.screen)
        await driver.press("escape", "tab", "j", "j", "enter")
        await driver.until(lambda: "return a @ b  # 2" in driver.screen)
        screens.append(driver.screen)
        await driver.press("Y")
        await driver.settle()
        assert "def candidate(a, b):\n    return a @ b  # 2\n" in driver.app.clipboard
        await driver.press("k")
        await driver.until(lambda: "return a @ b  # 3" in driver.screen)

    on_optimizer(root, script, (120, 40))
    check(screens[0], "optimizer-log-120x40")
    check(screens[1], "optimizer-source-120x40")


def test_without_glyphs_it_is_ascii(root: Path) -> None:
    add_course(root, ended=False)

    async def script(driver: Driver) -> None:
        for key in ("l", "escape", "enter", "escape", "p", "escape"):
            await driver.press(key)
            await driver.settle()
            assert driver.screen.isascii(), driver.screen

    on_optimizer(root, script, glyphs=Glyphs(ascii=True))


def test_what_was_the_best_and_is_slower_when_timed_again_is_no_longer_the_best(root: Path) -> None:
    scribe = Scribe(root)
    scribe.started()
    one = scribe.proposed(1, "WARPS 4 -> 8")
    scribe.judged(one, "PASS", 1.12)
    scribe.judged(one, "PASS", 0.99)

    async def script(driver: Driver) -> None:
        view = driver.app.optimizer
        await driver.until(lambda: bool(view.course and view.course.tried))
        assert "best none yet" in words(driver)
        assert "0.99x" in driver.screen

    on_optimizer(root, script)


def test_where_there_is_none_it_says_so_and_makes_no_ledger(root: Path) -> None:
    async def script(driver: Driver) -> None:
        assert "there is no optimization here yet" in driver.screen
        await driver.press("p")
        await driver.settle()
        assert driver.said[-1] == "replay: there is no optimization yet; o starts one"
        assert not (root / ".qrprof").exists()

    on_optimizer(root, script)


def test_a_damaged_ledger_is_a_message(root: Path) -> None:
    add_course(root)
    ledger_file(root).write_bytes(b"no SQLite" * 100)

    async def script(driver: Driver) -> None:
        assert driver.app.optimizer.problem
        assert "not a database; move it away" in words(driver)

    on_optimizer(root, script)


def test_the_selection_is_carried_to_an_optimization_and_back(root: Path) -> None:
    mm, qr = add_course(root, target="aten::mm"), add_course(root)

    async def script(driver: Driver) -> None:
        view = driver.app.optimizer
        assert driver.app.selection.key == "aten::linalg_qr"
        assert view.chosen == qr.name
        await driver.press("down")
        await driver.until(lambda: view.chosen == mm.name and view.course is not None)
        assert driver.app.selection.key == "aten::mm"
        await driver.press("1")
        await driver.settle()
        assert driver.app.bottlenecks.first.selected == "aten::mm"
        driver.app.bottlenecks.first.go_to("aten::linalg_qr")
        await driver.press("k", "j", "g")
        await driver.settle()
        await driver.press("5")
        await driver.until(lambda: view.chosen == qr.name)

    on_optimizer(root, script)


def test_a_filter_and_a_sort_are_for_the_candidates(root: Path) -> None:
    add_course(root)

    async def script(driver: Driver) -> None:
        await driver.press("/")
        await driver.type("outcome:pass")
        await driver.press("enter")
        await driver.settle()
        assert names(driver) == ["#3 WARPS 8, WIDTH 16", "#1 WARPS 4 -> 8"]
        assert "filter outcome:pass: 2 of 4" in driver.screen
        driver.app.optimizer.first.sort_by("speed")
        driver.app.optimizer.first.turn()
        await driver.settle()
        assert names(driver)[0] == "#1 WARPS 4 -> 8"

    on_optimizer(root, script)


def test_names_that_mean_harm_are_shown_as_they_are(root: Path) -> None:
    scribe = Scribe(root, "k[red]z\x1b[2J")
    scribe.started()
    scribe.judged(scribe.proposed(1, "[/] std::array<char*>[ok]\x07"), "FAIL", None, "two\nlines [@click=app.quit]x[/]")
    scribe.said("hint", text="[bold]")

    async def script(driver: Driver) -> None:
        for key in ("l", "escape", "enter", "escape"):
            await driver.press(key)
            await driver.settle()
        assert "#1 [/] std::array<char*>[ok]" in driver.screen
        assert "\x1b" not in driver.screen + driver.app.clipboard

    on_optimizer(root, script)


# --- what comes into it


def test_what_another_process_writes_comes_while_one_looks(root: Path) -> None:
    scribe = add_course(root, ended=False)
    drawn: list[Message] = []

    async def script(driver: Driver) -> None:
        assert "not ended" in driver.screen
        assert names(driver)[0] == "#5 WARPS 16"
        drawn.clear()
        many = [scribe.event("trouble", what="repeated", text=f"file {number}") for number in range(3000)]
        scribe.journal.add_events(scribe.name, many)
        scribe.judged(scribe.proposed(6, "WARPS 32"), "PASS", 3.0)
        scribe.ended(best=6)
        await driver.until(lambda: "ended: 40 evaluations" in driver.screen)
        assert "#6 3.00x" in driver.screen
        assert len(drawn) < 100  # by looks, not by events

    def count(message: Message) -> None:
        if isinstance(message, Grid.Filled):
            drawn.append(message)

    on_optimizer(root, script, hook=count)


def test_one_that_begins_elsewhere_is_listed(root: Path) -> None:
    add_course(root)

    async def script(driver: Driver) -> None:
        add_course(root, target="aten::mm")
        await driver.until(lambda: driver.app.optimizer.courses.row_count == 2)
        assert names(driver)[0] == "#4 STAGES 2 -> 5"  # what is shown stays

    on_optimizer(root, script)


def event(kind: Any, second: int, **record: Any) -> Event:
    return Event(kind, record, (BEGAN + timedelta(seconds=second)).isoformat())


def candidate(number: int) -> list[Event]:
    over = {"low": 1.0, "mid": 1.0 + 1 / (1 + number), "high": 3.0}
    judged = {"outcome": "PASS", "over": over, "why": "", "rung": "preview", "device": "cpu"}
    events = [
        event("proposed", number, number=number, sha256="", changed=f"WIDTH {number}"),
        event("judged", number, number=number, **judged),
    ]
    return [*events, event("better", number, number=1, over=over)] if number == 1 else events


def test_a_long_run_takes_no_more_memory_and_keeps_its_best() -> None:
    course = Course()
    for number in range(1, 20_000):
        course.take(candidate(number))
    assert course.seen == 2 * 19_999 + 1
    assert len(course.tried) == KEPT
    assert len(course.lines) == LINES
    assert course.best == 1
    assert course.tried[1].changed == "WIDTH 1"


def test_events_of_another_version_are_a_line() -> None:
    course = Course()
    course.take([event("judged", 1, number=7), *candidate(1), event("later", 2)])
    assert (course.seen, list(course.tried)) == (5, [1])
    assert course.lines[0] == "09:00:01 judged: written by another version of qrprof"


# --- replays


@given(st.lists(st.integers(0, 300), min_size=1), st.lists(st.floats(0, 100), min_size=1), st.floats(0.01, 1e6))
def test_a_replay_gives_every_event_once_and_in_its_order(pauses: list[int], frames: list[float], speed: float) -> None:
    at = 0
    events: list[Event] = []
    for pause in pauses:
        at += pause
        events.append(event("trouble", at, number=len(events)))
    replay = replay_of(events, speed)
    assert replay.length == sum(min(pause, LONGEST_PAUSE_S) for pause in pauses[1:])
    came = [one for frame in frames for one in replay.due(frame)]
    assert came == events[: len(came)]
    assert all(second <= replay.at for second, _ in replay.events[: len(came)])
    replay.held = True
    assert replay.due(1e9) == []
    replay.held = False
    came += replay.due(replay.length / speed + 1)
    assert (came, replay.over) == (events, True)


def test_a_replay_comes_to_what_the_optimization_came_to(root: Path) -> None:
    add_course(root)

    async def script(driver: Driver) -> None:
        view = driver.app.optimizer
        before = view.first.table()
        assert view.course is not None
        ended = view.course.ended
        await driver.press("p", *["backspace"] * 3)
        await driver.type("0.01x")
        await driver.press("enter")
        await driver.until(lambda: view.replay is not None and names(driver) == [])
        assert "replay at 0.01x" in driver.screen
        await driver.press("space")
        await driver.until(lambda: "paused" in driver.screen)
        assert view.replay is not None
        view.replay.speed = 1e6
        await driver.press("space")
        await driver.until(lambda: view.replay is None)
        assert view.first.table() == before
        assert view.course.ended == ended

    on_optimizer(root, script)


def test_a_replay_can_be_left_and_its_speed_has_to_be_one(root: Path) -> None:
    add_course(root)

    async def script(driver: Driver) -> None:
        await driver.press("p", "enter")
        await driver.until(lambda: "replay at 60.0x" in driver.screen)
        await driver.press("escape")
        await driver.until(lambda: len(names(driver)) == 4)
        await driver.press("p", "backspace", "backspace", "backspace", "enter")
        await driver.settle()
        assert "is no speedup" in driver.said[-1]

    on_optimizer(root, script)


# --- hints


def test_a_hint_goes_to_the_ledger(root: Path) -> None:
    scribe = add_course(root, ended=False)

    async def script(driver: Driver) -> None:
        await driver.press("i")
        await driver.type("fewer warps")
        await driver.press("enter")
        await driver.until(lambda: bool(driver.said))
        assert driver.said[-1] == f"kept for {scribe.name}: it is read before the next proposals"
        assert scribe.journal.hints(scribe.name) == ["fewer warps"]
        assert not isinstance(driver.app.focused, Input)

    on_optimizer(root, script)


def test_one_that_has_ended_takes_no_hint(root: Path) -> None:
    add_course(root)

    async def script(driver: Driver) -> None:
        await driver.press("i")
        await driver.settle()
        assert driver.said[-1] == "hint: it has ended; R goes on with it"

    on_optimizer(root, script)


# --- the process


def test_what_cannot_be_optimized_says_why(root: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("/")
        await driver.type("kind:gap")
        await driver.press("enter", "j", "o")
        await driver.settle()
        assert driver.said[-1] == "optimize: select an op: this is a gap"

    play(app_on(EXAMPLE, root), script)


def test_a_process_that_is_killed_is_a_message_and_the_app_goes_on(root: Path) -> None:
    folder = add_example(root)

    async def script(driver: Driver) -> None:
        await driver.press("o", "enter")
        await driver.until(lambda: driver.app.optimizer.runner is not None)
        assert driver.app.optimizer.runner is not None
        driver.app.optimizer.runner.process.kill()
        await driver.until(lambda: bool(driver.said))
        assert driver.said[-1] == "the optimizer has ended: it was ended by SIGKILL; what it found is kept"
        assert driver.app.optimizer.process_state() == "gone"
        await driver.press("1")
        await driver.settle()
        assert "linalg_qr" in driver.screen
        await driver.press("o")
        await driver.settle()
        assert isinstance(driver.app.focused, Input)  # another one may be started

    play(app_on(folder, root), script)


def test_a_process_that_fails_is_a_message(root: Path) -> None:
    add_example(root)

    async def script(driver: Driver) -> None:
        await driver.press("o", "enter")
        await driver.until(lambda: driver.app.optimizer.process_state() == "gone" and bool(driver.said), 6000)
        assert driver.app.shown == "optimizer"
        assert driver.said[-1].startswith("the optimizer has ended: ")
        await driver.press("o")
        await driver.type(' --start "')
        await driver.press("enter")
        await driver.settle()
        assert driver.said[-1] == "not started: No closing quotation"

    play(app_on(root / ".qrprof" / "runs" / "example", root), script)
