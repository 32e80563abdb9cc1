"""Golden screens of the timeline, launches and QR panels. QRPROF_SCREENS=write writes them anew."""

from pathlib import Path

import pytest
from tui_runs import SIZES, Driver, app_on, calm, check, play
from tui_traces import add_recorded

from qrprof.tui.app.glyphs import Glyphs

NAMES = {"2": "timeline", "3": "launches", "4": "panels"}
TRACES = {"2": "loader_bound", "3": "adamw_fused", "4": "qr_loop_8x512"}


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    calm(monkeypatch, tmp_path)
    return tmp_path


def shown(root: Path, size: tuple[int, int], *keys: str, ascii_only: bool = False) -> str:
    """The screen after these keys, the first of which opens a view."""
    screens = []

    async def script(driver: Driver) -> None:
        await driver.press(keys[0])
        await driver.until(lambda: bool(driver.app.view and driver.app.view.ready))
        await driver.press(*keys[1:])
        await driver.settle()
        screens.append(driver.screen)

    play(app_on(add_recorded(root, TRACES[keys[0]]), root, glyphs=Glyphs(ascii_only)), script, size)
    return screens[0]


@pytest.mark.parametrize("view", NAMES)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: "{}x{}".format(*size))
def test_a_view(root: Path, view: str, size: tuple[int, int]) -> None:
    check(shown(root, size, view), f"{NAMES[view]}-{size[0]}x{size[1]}")


def test_the_longest_gap(root: Path) -> None:
    check(shown(root, (80, 24), "2", "]"), "timeline-gap-80x24")


def test_near_a_gap_in_ascii(root: Path) -> None:
    check(shown(root, (80, 24), "2", "]", "]", "]", "F", "s", "s", ascii_only=True), "timeline-near-80x24")


def test_by_what_is_launched(root: Path) -> None:
    check(shown(root, (120, 40), "3", "b"), "launches-by-work-120x40")
