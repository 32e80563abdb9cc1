"""The timeline view, in the real app: gaps, spans, searches and the selection."""

from pathlib import Path

import pytest
from timeline_view import LOADER, STREAMS, lanes, line_of, longest_gaps, on_timeline, told
from tui_runs import SIZES, Driver, calm
from tui_traces import add_recorded

from qrprof.profiler import units
from qrprof.tui.app.views.timeline import TimelineView
from qrprof.tui.app.widgets.lanes import MARKS


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    calm(monkeypatch, tmp_path)
    return tmp_path


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
        await driver.press("n")
        assert lanes(driver).picked is not None
        assert driver.app.selection.key == key

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
