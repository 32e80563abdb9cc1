"""What stands on the screen: golden texts of a fixed run, plain ASCII, no colours, and names that mean harm.

QRPROF_SCREENS=write writes the golden texts anew.
"""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from swap_cases import SOURCE, accepted, verified
from textual.widgets import Input
from tui_optimizations import add_course
from tui_runs import SIZES, Driver, add_example, add_small, app_on, calm, change, check, ops, play, stretch

from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.state import Kept
from qrprof.tui.app.themes import CYCLE
from qrprof.tui.app.views.start import EXAMPLE

HOSTILE = (
    "std::array<char*, 3ul>[ok]",
    "k[red]z",
    "[/]",
    "[/foo]",
    "[@click=app.quit]x[/]",
    "esc\x1b[2Jape\x07\x00",
    "two\nlines\tand a tab",
    "right-to-left \u202eoverride",
    "漢字仮名交じり文の長い名前の演算子",
    "\U0001f469\u200d\U0001f52c emoji",
    "x" * 10_000,
    "$(rm)`",
    " ",
)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    calm(monkeypatch, tmp_path)
    return tmp_path


def shown(root: Path, size: tuple[int, int], *keys: str, typed: str = "", ascii_only: bool = False) -> str:
    """The screen of the example run after these keys."""
    screens = []

    async def script(driver: Driver) -> None:
        await driver.press(*keys)
        await driver.type(typed)
        await driver.settle()
        if "w" in keys:
            await driver.until(lambda: bool(driver.app.bottlenecks.told.line))
        screens.append(driver.screen)

    play(app_on(EXAMPLE, root, glyphs=Glyphs(ascii_only)), script, size)
    return screens[0]


# --- golden texts


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "{}x{}".format(*size))
def test_bottlenecks(root: Path, size: tuple[int, int]) -> None:
    check(shown(root, size), "bottlenecks-{}x{}".format(*size))


def test_details_on_a_small_terminal(root: Path) -> None:
    check(shown(root, (60, 16), "enter"), "details-60x16")


def test_what_if(root: Path) -> None:
    check(shown(root, (120, 40), "w", typed="linalg_qr=4x launch=0"), "what-if-120x40")


def test_filter(root: Path) -> None:
    check(shown(root, (80, 24), "/", typed="kind:gap"), "filter-80x24")


def test_compared(root: Path) -> None:
    add_example(root, "before", slower=1.3)
    screens = []

    async def script(driver: Driver) -> None:
        await driver.press("c")
        await driver.settle()
        screens.append(driver.screen)
        await driver.press("enter")
        await driver.until(lambda: "B - A" in driver.screen)
        screens.append(driver.screen)

    play(app_on(EXAMPLE, root), script, (120, 40))
    check(screens[0], "choose-a-run-120x40")
    check(screens[1], "compared-120x40")


def test_help(root: Path) -> None:
    check(shown(root, (80, 24), "?", typed="filter"), "help-80x24")


@pytest.mark.parametrize("size", SIZES[:2], ids=lambda size: "{}x{}".format(*size))
def test_start(size: tuple[int, int]) -> None:
    screens = []

    async def script(driver: Driver) -> None:
        screens.append(driver.screen)

    play(app_on(None, Path("/work/project")), script, size)
    check(screens[0], "start-{}x{}".format(*size))


# --- without glyphs, without colours


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "{}x{}".format(*size))
def test_ascii_is_ascii(root: Path, size: tuple[int, int]) -> None:
    screen = shown(root, size, "w", typed="linalg_qr=2x", ascii_only=True)
    assert screen.isascii(), [line for line in screen.splitlines() if not line.isascii()]
    assert "linalg_qr" in screen


def test_what_lies_over_a_view_is_ascii_too(root: Path) -> None:
    async def script(driver: Driver) -> None:
        for key in ("y", "x", "?", "ctrl+p"):
            await driver.press(key)
            await driver.settle()
            assert driver.screen.isascii(), driver.screen
            await driver.press("escape")
            await driver.settle()

    play(app_on(EXAMPLE, root, glyphs=Glyphs(ascii=True)), script)


def hues(svg: str) -> set[str]:
    """Colours of a picture that are no grey; the frame that Textual draws around it is not the app's."""
    picture = re.sub("<circle[^>]*>|#c5c8c6", "", svg)
    found = set(re.findall(r"#([0-9a-f]{6})", picture.lower()))
    return {one for one in found if len({one[0:2], one[2:4], one[4:6]}) > 1}


@pytest.mark.parametrize("theme", [CYCLE[0], *(pytest.param(theme, marks=pytest.mark.slow) for theme in CYCLE[1:])])
def test_without_colours_the_same_is_said(root: Path, monkeypatch: pytest.MonkeyPatch, theme: str) -> None:
    pictures: list[tuple[str, str]] = []

    async def script(driver: Driver) -> None:
        await driver.press("w")
        await driver.type("mm=2x")
        await driver.settle()
        pictures.append((driver.screen, driver.app.export_screenshot()))

    play(app_on(EXAMPLE, root, kept=Kept(theme=theme)), script)
    monkeypatch.setenv("NO_COLOR", "1")
    play(app_on(EXAMPLE, root, kept=Kept(theme=theme)), script)
    (text, _), (plain_text, plain) = pictures
    assert plain_text == text
    assert hues(plain) == set()


@pytest.mark.parametrize("name", [*CYCLE, "no-color", "ascii"])
def test_pictures(root: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The colours of each theme, for eyes."""
    if name == "no-color":
        monkeypatch.setenv("NO_COLOR", "1")
    pictures = []

    async def script(driver: Driver) -> None:
        await driver.suppose("linalg_qr=4x")
        await driver.press("enter")
        await driver.settle()
        pictures.append(driver.app.export_screenshot())

    kept = Kept(theme=name if name in CYCLE else CYCLE[0])
    play(app_on(EXAMPLE, root, kept=kept, glyphs=Glyphs(name == "ascii")), script)
    check(pictures[0], f"{name}.svg")


@pytest.mark.parametrize(("key", "view"), [("2", "timeline"), ("5", "optimizer"), ("6", "suggestions")])
def test_pictures_of_other_views(root: Path, key: str, view: str) -> None:
    """Spans and gaps, outcomes and states in their colours, for eyes."""
    add_course(root, ended=False)
    verified(root)
    accepted(root, SOURCE.replace("weights", "w"))
    verified(root, SOURCE.replace("weights", "x"), outcome="FAIL")
    pictures = []

    async def script(driver: Driver) -> None:
        await driver.press(key)
        await driver.until(lambda: bool(driver.app.view and driver.app.view.ready))
        await driver.settle()
        pictures.append(driver.app.export_screenshot())

    play(app_on(EXAMPLE, root), script, (120, 40))
    check(pictures[0], f"{view}.svg")


def test_nothing_blinks(root: Path) -> None:
    async def script(driver: Driver) -> None:
        for key in ("/", "?"):
            await driver.press(key)
            await driver.settle()
            assert isinstance(driver.app.focused, Input)
            assert not driver.app.focused.cursor_blink
            await driver.press("escape")
            await driver.settle()

    play(app_on(EXAMPLE, root), script)


# --- names from traces


def assert_lives_with(root: Path, names: list[str]) -> None:
    folder = add_small(root, ops(names), f"run-{len(list(root.glob('.qrprof/runs/*')))}")
    change(folder, lambda record: stretch(record, len(names) / 80))

    async def script(driver: Driver) -> None:
        assert driver.app.bottlenecks.ready, driver.app.bottlenecks.problem
        for key in ("1", "enter", "escape", "2", "3", "4", "1", "?", "escape", "y", "Y", "G"):
            await driver.press(key)
            await driver.settle()
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", driver.screen)
        assert all(char.isprintable() or char == "\n" for char in driver.app.clipboard)

    play(app_on(folder, root), script)


def test_names_that_look_like_markup_or_control_a_terminal_are_shown_as_they_are(root: Path) -> None:
    assert_lives_with(root, list(HOSTILE))
    folder = add_small(root, ops(["k[red]z", "[/]"]), "two")
    change(folder, lambda record: stretch(record, 0.025))

    async def script(driver: Driver) -> None:
        assert "k[red]z" in driver.screen
        assert "[/]" in driver.screen

    play(app_on(folder, root), script)


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(["\x00", "\ud7ff", "a" * 300])
@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=40), min_size=1, max_size=12, unique=True))
def test_any_names_are_shown(root: Path, names: list[str]) -> None:
    assert_lives_with(root, names)
