"""The timeline view, in the real app: what is shown, and at what work."""

import asyncio
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from textual.app import App, ComposeResult
from timeline_view import STREAMS, label_of, lanes, line_of, on_timeline, told
from tui_runs import SIZES, Driver, add_small, calm
from tui_traces import add_recorded

from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.timeline_model import Lane, Timeline, Viewport
from qrprof.tui.app.views.timeline import TimelineView
from qrprof.tui.app.widgets.canvas import ASCII_RAMP, RAMP
from qrprof.tui.app.widgets.lanes import MARKS, RULER, Lanes


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    calm(monkeypatch, tmp_path)
    return tmp_path


# --- what is shown


@pytest.mark.parametrize("size", SIZES)
def test_a_line_a_stream_and_a_thread_and_the_gaps(root: Path, size: tuple[int, int]) -> None:
    async def script(driver: Driver) -> None:
        for label in ("stream 7", "stream 54", "stream 58", "thread 529"):
            cells = line_of(driver, label)
            assert set(cells) & set(RAMP[1:])
            assert len(cells) <= size[0] - lanes(driver).label_width
        assert line_of(driver, "gaps").split() == ["l", "l"]  # two gaps of 11 us in 18 ms: a letter each
        assert driver.lines[lanes(driver).region.y + RULER].split()[:2] == ["17.9", "ms"]
        assert "step 2" in driver.screen

    on_timeline(add_recorded(root, STREAMS), root, script, size)


def test_a_name_is_written_into_a_span_that_has_room(root: Path) -> None:
    async def script(driver: Driver) -> None:
        assert "Memcpy HtoD (Pinned" in line_of(driver, "stream 54")
        assert "cudaDeviceSynchronize" in line_of(driver, "thread 529")

    on_timeline(add_recorded(root, STREAMS), root, script, (120, 40))


def test_lanes_that_were_drawn_before_they_knew_their_size_are_drawn_again(root: Path) -> None:
    """The lane of the gaps does not scroll: the others begin under it."""

    async def script(driver: Driver) -> None:
        right, widget = driver.screen, lanes(driver)
        widget.top = 0
        widget.refresh()
        await driver.settle()
        assert driver.screen != right
        widget.on_resize()
        await driver.settle()
        assert driver.screen == right

    on_timeline(add_recorded(root, STREAMS), root, script, (200, 60))


def test_ascii(root: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("]", "F", "s")
        assert driver.screen.isascii()
        assert set(line_of(driver, "stream 7")) & set(ASCII_RAMP[1:])
        assert "^" in driver.lines[lanes(driver).region.y + MARKS]

    on_timeline(add_recorded(root, STREAMS), root, script, glyphs=Glyphs(ascii=True))


def test_without_a_device_the_reason_stands_in_place_of_the_gaps(root: Path, build: Any) -> None:
    async def script(driver: Driver) -> None:
        assert "gaps are withheld: no device work in the steps" in told(driver)
        await driver.press("]", "[", "f", "F", ".", ",", "n")
        assert any("no device work" in one for one in driver.said)
        assert "thread 1" in driver.screen

    rows = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 50, "args": {}}]
    on_timeline(add_small(root, rows), root, script)


def test_a_trace_of_nothing_but_the_profilers_own_rows_has_no_lanes(root: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("w", "d", "j", "k", ".", ",", "]", "f", "y", "0")
        assert not driver.app.query_one(TimelineView).table().rows

    rows = [{"ph": "X", "cat": "overhead", "name": "Buffer", "pid": 1, "tid": 1, "ts": 0, "dur": 50, "args": {}}]
    on_timeline(add_small(root, rows), root, script)


NAMES: Final = [
    "[/]",
    "k[red]z",
    "std::array<char*, 3ul>[ok]",
    "\x1b[31m\x07a",
    "漢字漢字",
    "e\u0301\u202e",
    "x" * 10_000,
]


@pytest.mark.parametrize("size", [SIZES[0], SIZES[-1]])
def test_any_name_is_drawn_as_it_is(root: Path, size: tuple[int, int]) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("j")
        for _ in NAMES:
            await driver.press(".", "F")
            assert all(len(line) <= size[0] for line in driver.lines if line.isascii())
            assert not any(char in driver.screen for char in "\x1b\x07\u202e")
        assert "xxxxxx" in driver.screen

    rows = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 100 * place, "dur": 90, "args": {}}
        for place, name in enumerate(NAMES)
    ]
    on_timeline(add_small(root, rows), root, script, size)


def test_the_lines_scroll_so_that_the_selected_one_is_shown(root: Path) -> None:
    rows = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 100 + thread, "ts": 0, "dur": 50, "args": {}}
        for thread in range(40)
    ]

    async def script(driver: Driver) -> None:
        await driver.press(*"j" * 25)
        assert "▸◆thread 125" in driver.screen
        await driver.press(*"k" * 3)
        assert "▸◆thread 122" in driver.screen
        assert "thread 125" in driver.screen  # the view did not jump

    on_timeline(add_small(root, rows), root, script)


@pytest.mark.parametrize("size", [SIZES[0], SIZES[-1]])
def test_gaps_of_many_devices_leave_room_for_the_other_lines(root: Path, size: tuple[int, int]) -> None:
    rows = []
    for device in range(8):
        args = {"device": device, "stream": 7, "correlation": device + 1}
        for at in (10, 60):
            span = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": device, "tid": 7, "ts": at, "dur": 20}
            rows.append(span | {"args": args})

    async def script(driver: Driver) -> None:
        for place in range(16):
            assert f"▸ {label_of(driver, place)}" in driver.screen.replace("◆", " ")
            await driver.press("j")
        assert [label_of(driver, place) for place in (0, 7, 8, 15)] == ["gaps 0", "gaps 7", "stream 0:7", "stream 7:7"]

    on_timeline(add_small(root, rows), root, script, size)


# --- work


class Alone(App[None]):
    """Nothing but the lanes."""

    def compose(self) -> ComposeResult:
        yield Lanes(Glyphs())


def many(spans: int, streams: int) -> Timeline:
    draw, order = np.random.default_rng(0), np.arange(spans)
    own = []
    for stream in range(streams):
        start, end = np.cumsum(draw.integers(1, 4000, 2 * spans)).reshape(-1, 2).T
        own.append(Lane(f"stream {stream}", start, end, order % 9, order % 9, start, end, order))
    names = tuple("abcdefghi")
    return Timeline(tuple(own), 0, names, names, Viewport(0, int(max(lane.end[-1] for lane in own))), ())


@pytest.mark.parametrize("spans", [1000, 100_000])
def test_a_frame_looks_at_few_times_however_many_spans_there_are(spans: int) -> None:
    async def looked() -> list[int]:
        app, found = Alone(), []
        async with app.run_test(size=(120, 40)) as pilot:
            shown = app.query_one(Lanes)
            shown.show(many(spans, 4))
            await pilot.pause()
            for by, at in ((0.5, 0.3), (0.1, 0.7), (1.0, 0.0), (3.0, 0.5)):
                before = shown.tally.looked
                shown.look(shown.view.zoomed(by, at).moved(0.25))
                await pilot.pause()
                found.append(shown.tally.looked - before)
        return found

    columns, depth = 100, spans.bit_length() + 1
    frames = asyncio.run(looked())
    assert all(0 < frame <= 2 * 4 * 12 * (columns + 1) * depth for frame in frames)  # at most two frames, four lanes
