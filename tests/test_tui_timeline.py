"""The timeline view, in the real app."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from textual import events
from textual.app import App, ComposeResult
from tui_runs import SIZES, Driver, add_small, app_on, calm, play
from tui_traces import add_recorded

from qrprof.profiler import units
from qrprof.profiler.facts import find_facts
from qrprof.profiler.gaps import Gap, find_idle
from qrprof.profiler.load import load_run
from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.timeline_model import Lane, Timeline, Viewport
from qrprof.tui.app.views.timeline import TimelineView
from qrprof.tui.app.widgets.canvas import ASCII_RAMP, RAMP
from qrprof.tui.app.widgets.lanes import HEAD, MARKS, RULER, Lanes

Script = Callable[[Driver], Awaitable[None]]
LOADER: Final = "loader_bound"  # 633 gaps of five causes on one stream
STREAMS: Final = "two_streams_overlap"  # three streams
WHOLE_MS: Final = "70.5 ms shown"


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    calm(monkeypatch, tmp_path)
    return tmp_path


def on_timeline(folder: Path, root: Path, script: Script, size: tuple[int, int] = (80, 24), **options: Any) -> None:
    """Run the script once the timeline is shown."""

    async def opened(driver: Driver) -> None:
        await driver.press("2")
        await driver.until(lambda: bool(driver.app.view and driver.app.view.ready))
        await script(driver)

    play(app_on(folder, root, **options), opened, size)


def lanes(driver: Driver) -> Lanes:
    return driver.app.query_one(Lanes)


def line_of(driver: Driver, label: str) -> str:
    """The cells of a lane."""
    width = lanes(driver).label_width
    return next(line[width:] for line in driver.lines if line[2:width].strip() == label)


def told(driver: Driver) -> str:
    """What is said under the lanes, on one line."""
    region = lanes(driver).region
    return " ".join(" ".join(driver.lines[region.bottom : region.bottom + 4]).split())


def longest_gaps(folder: Path) -> list[Gap]:
    run, trace = load_run(folder)
    return sorted(find_idle(find_facts(trace, run), run).gaps or [], key=lambda gap: -gap.ns)


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
            assert f"▸ {label(driver, place)}" in driver.screen.replace("◆", " ")
            await driver.press("j")
        assert [label(driver, place) for place in (0, 7, 8, 15)] == ["gaps 0", "gaps 7", "stream 0:7", "stream 7:7"]

    on_timeline(add_small(root, rows), root, script, size)


# --- moving


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
        place = next(y for y in range(found.size.height) if (at := found.lane_at(y)) and "54" in label(driver, at))
        await driver.pilot.click(Lanes, (found.label_width + column, place))
        assert told(driver).startswith("Memcpy HtoD (Pinned -> Device)")
        assert "▸◆stream 54" in driver.screen
        assert driver.app.selection.key == "unattributed"  # its launch is not in the file

    on_timeline(add_recorded(root, STREAMS), root, script, (120, 40))


def label(driver: Driver, lane: int) -> str:
    timeline = lanes(driver).timeline
    assert timeline
    return timeline.lanes[lane].label


# --- gaps


@pytest.mark.parametrize("size", SIZES)
def test_gaps_by_their_size(root: Path, size: tuple[int, int]) -> None:
    folder = add_recorded(root, LOADER)
    gaps = longest_gaps(folder)

    async def script(driver: Driver) -> None:
        for number in (1, 2, 3):
            gap = gaps[number - 1]
            await driver.press("]")
            assert driver.app.selection.gap == gap.start
            said = told(driver)
            assert said.startswith(f"{'data loading' if gap.cause == 'data' else ''}")
            assert f"{units.time(gap.ns)}, {units.share(gap.share)} of the step" in said
            assert f"blamed on {gap.op[:20]}" in said
            assert "▲" in driver.lines[lanes(driver).region.y + MARKS]
        await driver.press("[")
        assert driver.app.selection.gap == gaps[1].start
        await driver.press("[", "[")
        assert driver.app.selection.gap == gaps[0].start

    on_timeline(folder, root, script, size)


def test_a_gap_names_its_cause_the_host_and_its_share(root: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("]")
        assert told(driver) == (
            "data loading: 17.7 ms, 50.4 % of the step blamed on "
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__, thread 529 "
            "gap 1 of 633 by size, at 0.000000 ms in step 2, before Memcpy HtoD (Pageable -> Device)"
        )
        await driver.press("F")
        assert "DDDDDD" in line_of(driver, "gaps")

    on_timeline(add_recorded(root, LOADER), root, script, (120, 40))


def test_centre_and_fit(root: Path) -> None:
    folder = add_recorded(root, LOADER)
    gap = longest_gaps(folder)[4]

    async def script(driver: Driver) -> None:
        await driver.press("f")
        assert any("pick a span first" in one for one in driver.said)
        await driver.press(*"]]]]]", "0", "w", "w", "w", "f")
        view = lanes(driver).view
        assert abs((view.start + view.end) // 2 - (gap.start + gap.end) // 2) <= 2
        await driver.press("f")
        fitted = lanes(driver).view
        assert gap.ns / fitted.ns == pytest.approx(0.8, abs=0.01)
        await driver.press("s", "d", "F")
        assert lanes(driver).view == fitted

    on_timeline(folder, root, script)


def test_what_is_picked_stays_in_place_as_one_zooms(root: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("]", "]", *"w" * 5)
        found, picks = lanes(driver), lanes(driver).picks()
        assert picks.any()
        assert found.view.ns * 32 == pytest.approx(70.46e6, rel=1e-3)

    on_timeline(add_recorded(root, LOADER), root, script)


# --- spans, marks and the selection


def test_spans_of_a_line_one_after_the_other(root: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("j", "0", ".")
        first = lanes(driver).picked
        await driver.press(".")
        second = lanes(driver).picked
        assert first is not None
        assert second is not None
        assert (second.lane, second.span) == (first.lane, first.span + 1)
        await driver.press("comma")
        assert lanes(driver).picked == first
        assert "on stream 7" in told(driver)

    on_timeline(add_recorded(root, LOADER), root, script)


@pytest.mark.parametrize("size", SIZES)
def test_what_is_narrower_than_a_cell_is_marked_and_counted(root: Path, size: tuple[int, int]) -> None:
    async def script(driver: Driver) -> None:
        driver.app.set_filter("functor_add")
        await driver.settle()
        marks = driver.lines[lanes(driver).region.y + MARKS]
        assert "◆ 4/4" in marks
        assert 1 <= marks.count("◆") - 1 <= 4

    on_timeline(add_recorded(root, STREAMS), root, script, size)


def test_a_search_is_typed_and_stepped_through(root: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("/")
        await driver.type("torad")
        await driver.press("enter")
        await driver.settle()
        assert "filter torad: 4 of" in driver.screen
        await driver.press("n")
        first = lanes(driver).picked
        await driver.press("n")
        assert lanes(driver).picked != first
        await driver.press("N")
        assert lanes(driver).picked == first
        await driver.press(*"w" * 6)
        assert "◆ 1/4" in driver.screen
        await driver.press("escape")
        await driver.settle()
        assert "filter torad" not in driver.screen

    on_timeline(add_recorded(root, STREAMS), root, script)


def test_a_search_for_gaps_of_a_cause(root: Path) -> None:
    async def script(driver: Driver) -> None:
        driver.app.set_filter("kind:gap data")
        await driver.settle()
        assert "◆ 2/2" in driver.screen

    on_timeline(add_recorded(root, LOADER), root, script)


def test_the_selection_is_carried_both_ways(root: Path) -> None:
    folder = add_recorded(root, LOADER)

    async def script(driver: Driver) -> None:
        await driver.press("]")
        assert driver.app.selection.key == "gap:data"
        await driver.press("1")
        await driver.settle()
        selected = driver.app.bottlenecks.row_selected()
        assert selected is not None
        assert selected.key == "gap:data"
        await driver.press("j")
        key = driver.app.selection.key
        await driver.press("2")
        await driver.settle()
        marked = lanes(driver).marked
        assert key != "gap:data"
        assert marked is not None
        assert marked.count > 0

    on_timeline(folder, root, script)


def test_copies_are_of_the_time_shown(root: Path) -> None:
    async def script(driver: Driver) -> None:
        view = driver.app.query_one(TimelineView)
        columns, rows = view.table()
        assert list(columns) == ["lane", "busy", "share", "spans"]
        assert [row[0] for row in rows] == ["gaps", "stream 7", "stream 54", "stream 58", "thread 529"]
        assert view.row() == rows[0]
        await driver.press(*"w" * 20)
        assert view.table() != (columns, rows)
        await driver.press("]")
        assert "launch-bound op" in next(iter(view.row() or ()))

    on_timeline(add_recorded(root, STREAMS), root, script)


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
