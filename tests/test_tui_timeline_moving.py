"""The timeline view, in the real app: zoom and pan by keys and the mouse."""

from pathlib import Path

import numpy as np
import pytest
from textual import events
from timeline_view import LOADER, STREAMS, WHOLE_MS, label_of, lanes, line_of, on_timeline, told
from tui_runs import Driver, calm
from tui_traces import add_recorded

from qrprof.profiler import units
from qrprof.tui.app.timeline_model import Viewport
from qrprof.tui.app.widgets.lanes import HEAD, RULER, Lanes


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    calm(monkeypatch, tmp_path)
    return tmp_path


def test_zoom_and_pan_by_keys(root: Path) -> None:
    async def script(driver: Driver) -> None:
        whole = lanes(driver).view
        assert WHOLE_MS in driver.screen
        await driver.press("w")
        assert lanes(driver).view == whole.zoomed(0.5)
        await driver.press("+", "a")
        assert lanes(driver).view == whole.zoomed(0.5).zoomed(0.5).moved(-0.25)
        await driver.press("d", "-", "s")
        assert abs(lanes(driver).view.start - whole.start) <= 2
        await driver.press("w", "left", "l", "h", "0")
        assert lanes(driver).view == whole
        await driver.press("d")
        assert lanes(driver).view == whole  # there is nothing to move to
        await driver.press(*"w" * 17)
        assert "1.00 us shown" in driver.screen

    on_timeline(add_recorded(root, LOADER), root, script)


def test_the_ruler_tells_absolute_times_and_how_much_is_shown(root: Path) -> None:
    async def script(driver: Driver) -> None:
        ruler = lanes(driver).region.y + RULER
        await driver.press("w", "w", "w", "w", "w", "w")
        timeline, view = lanes(driver).timeline, lanes(driver).view
        assert timeline is not None
        origin = timeline.whole.start
        label, *ticks = driver.lines[ruler].split("╷")
        assert label.strip() == f"{units.time(view.ns)} shown"
        times = [float(tick.split()[0]) for tick in ticks if tick.strip()]
        assert all(view.start <= origin + 1e6 * time < view.end for time in times)
        assert len(times) >= 2
        assert np.ptp(np.diff(times)) == pytest.approx(0, abs=1e-9)

    on_timeline(add_recorded(root, LOADER), root, script)


async def scroll(driver: Driver, kind: type[events.MouseEvent], x: int, y: int) -> None:
    await driver.pilot._post_mouse_events([kind], lanes(driver), (x, y))


def test_the_wheel_zooms_where_the_mouse_is(root: Path) -> None:
    async def script(driver: Driver) -> None:
        found = lanes(driver)
        whole, column = found.view, 10
        await scroll(driver, events.MouseScrollUp, found.label_width + column, HEAD)
        assert found.view == whole.zoomed(0.8, (column + 0.5) / found.columns)
        await scroll(driver, events.MouseScrollDown, found.label_width + column, HEAD)
        assert abs(found.view.start - whole.start) <= 2
        await scroll(driver, events.MouseScrollDown, 1, HEAD)  # over the labels
        assert (found.lane, found.view) == (1, whole)

    on_timeline(add_recorded(root, LOADER), root, script)


def test_a_drag_moves_and_one_on_the_ruler_zooms(root: Path) -> None:
    async def drag(driver: Driver, y: int, start: int, end: int) -> None:
        width = lanes(driver).label_width
        await driver.pilot.mouse_down(Lanes, (width + start, y))
        await driver.pilot.hover(Lanes, (width + end, y))
        await driver.pilot.mouse_up(Lanes, (width + end, y))

    async def script(driver: Driver) -> None:
        found = lanes(driver)
        edges = found.view.edges(found.columns)
        await drag(driver, RULER, 10, 29)
        assert found.view == Viewport(int(edges[10]), int(edges[30]))
        before = found.view
        await drag(driver, HEAD, 20, 10)
        assert found.view == before.moved(10 / found.columns)
        assert found.picked is None  # a drag is no click

    on_timeline(add_recorded(root, LOADER), root, script)


def test_a_click_picks_what_is_there(root: Path) -> None:
    async def script(driver: Driver) -> None:
        found = lanes(driver)
        column = line_of(driver, "stream 54").index("Memcpy")
        place = next(y for y in range(found.size.height) if (at := found.lane_at(y)) and "54" in label_of(driver, at))
        await driver.pilot.click(Lanes, (found.label_width + column, place))
        assert told(driver).startswith("Memcpy HtoD (Pinned -> Device)")
        assert "▸◆stream 54" in driver.screen
        assert driver.app.selection.key == "unattributed"  # its launch is not in the file

    on_timeline(add_recorded(root, STREAMS), root, script, (120, 40))
