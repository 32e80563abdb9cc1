"""The terminal UI: the ranking, what-ifs as they are typed, filters, sorting, and another run beside it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.widgets import OptionList
from tui_runs import Driver, add_example, add_small, app_on, calm, change, ops, play, stretch

from qrprof.tui.app.filters import Record, parse
from qrprof.tui.app.session import Session
from qrprof.tui.app.views.start import EXAMPLE
from qrprof.tui.app.views.whatif import Answer, answer


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    calm(monkeypatch, tmp_path)
    return tmp_path


@pytest.fixture
def example() -> Path:
    return EXAMPLE


def percent(cells: list[str]) -> float:
    return sum(float(cell.removesuffix(" %")) for cell in cells if cell.endswith("%"))


# --- the ranking


def test_shares_add_up_to_the_step_with_idle_time_as_rows(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        found = driver.app.bottlenecks.found
        assert found is not None
        assert sum(row.share or 0.0 for row in found.rows) == pytest.approx(1)
        assert sum(row.ns or 0.0 for row in found.rows) == pytest.approx(Session(example).partition.step_ns)
        assert "launch-bound op (gap)" in driver.column("what")
        assert percent(driver.column("share")) == pytest.approx(100, abs=0.05 * len(found.rows))
        assert "total 39.4 ms/step, 100.0 %" in driver.screen

    play(app_on(example, root), script)


def test_details_say_what_show_says(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        text = " ".join(driver.screen.split())
        for part in ("ceiling 2.73x", "up to 24.9 ms a step", "Replace it by a faster QR kernel", "made of"):
            assert part in text
        assert "aten::linalg_qr" in text

    play(app_on(example, root), script, (200, 60))


def test_a_small_terminal_shows_the_details_in_the_tables_place(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        assert "advice" not in driver.screen
        await driver.press("enter")
        await driver.settle()
        assert "advice" in driver.screen
        assert "ms/step" not in driver.lines[2]
        assert driver.lines[-2].strip() == "esc: back to the table"
        await driver.press("escape")
        await driver.settle()
        assert "ms/step" in driver.lines[2]

    play(app_on(example, root), script, (60, 16))


def test_enter_goes_to_the_details_beside_the_table_and_esc_back(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("enter")
        await driver.settle()
        assert driver.app.focused is driver.app.bottlenecks.query_one(".details")
        assert "ms/step" in driver.screen
        await driver.press("escape")
        await driver.settle()
        assert driver.app.focused is driver.app.bottlenecks.first

    play(app_on(example, root), script, (120, 40))


def test_a_table_has_500_rows_at_most_and_the_others_in_one(root: Path) -> None:
    folder = add_small(root, ops([f"my::op_{number:03}" for number in range(700)]))
    change(folder, lambda record: stretch(record, 8.75))  # to the 7 ms of the trace

    async def script(driver: Driver) -> None:
        grid, found = driver.app.bottlenecks.first, driver.app.bottlenecks.found
        assert found is not None
        rows = len(found.rows)
        assert rows >= 700
        few = driver.column("what")
        assert few[-1] == f"{rows - len(few) + 1} others"
        assert grid.row_count == len(few) <= 41
        await driver.press("G", "enter")
        await driver.settle()
        assert grid.row_count == 501
        assert driver.column("what")[-1] == f"{rows - 500} others"
        assert percent(driver.column("share")) == pytest.approx(100, abs=0.05 * 501)

    play(app_on(folder, root), script)


# --- what-ifs


def test_a_what_if_is_answered_while_it_is_typed(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.suppose("linalg_qr=4x")
        assert "39.4 ms -> 20.7 ms, 1.91x" in driver.screen
        then = dict(zip(driver.column("what"), driver.column("then, ms"), strict=True))
        assert then["linalg_qr"] == "2.36"
        assert then["host work (gap)"] == "4.06"
        await driver.type(" launch=0")
        await driver.until(lambda: "39.4 ms -> 4.29 ms" in driver.screen)
        then = dict(zip(driver.column("what"), driver.column("then, ms"), strict=True))
        assert then["launch-bound op (gap)"] == "0"

    play(app_on(example, root), script, (120, 40))


def test_an_unfinished_what_if_says_what_is_missing_and_keeps_no_old_figure(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.suppose("linalg_qr=4x")
        await driver.press("backspace", "backspace")
        await driver.until(lambda: "is not KEY=SPEC" in driver.screen)
        assert set(driver.column("then, ms")) == {"–"}
        await driver.press("escape")
        await driver.settle()
        assert "then, ms" not in driver.screen

    play(app_on(example, root), script, (120, 40))


def test_fast_typing_asks_for_the_last_text_only(root: Path, example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(session: Session, text: str) -> Answer:
        asked.append(text)
        return answer(session, text)

    monkeypatch.setattr("qrprof.tui.app.views.bottlenecks.answer", counted)

    async def script(driver: Driver) -> None:
        for text in ("mm=2", "mm=2x", "mm=2x bmm", "mm=2x bmm=4x"):
            driver.app.bottlenecks.suppose(text)  # faster than any key
        await driver.until(lambda: bool(driver.app.bottlenecks.told.line))
        assert asked == ["mm=2x bmm=4x"]

    play(app_on(example, root), script)


def test_where_no_replay_is_believed_a_what_if_says_why(root: Path) -> None:
    folder = add_small(root, [])

    async def script(driver: Driver) -> None:
        assert driver.app.bottlenecks.problem
        await driver.press("w")
        await driver.settle()
        assert driver.said[-1] == "what if: nothing is loaded yet"

    play(app_on(folder, root), script)


# --- filters


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("kind:gap", {"launch-bound op (gap)", "host work (gap)", "blocking copy (gap)"}),
        ("share>2", {"linalg_qr", "launch-bound op (gap)", "host work (gap)"}),
        ("gain>1", {"linalg_qr", "launch-bound op (gap)", "host work (gap)"}),
        ("lqr", {"linalg_qr"}),
        ("kind:gap ms>10", {"launch-bound op (gap)"}),
    ],
)
def test_a_filter_keeps_what_matches_as_it_is_typed(root: Path, example: Path, typed: str, kept: set[str]) -> None:
    async def script(driver: Driver) -> None:
        total = len(driver.column("what"))
        await driver.press("/")
        await driver.type(typed)
        await driver.settle()
        assert set(driver.column("what")) == kept
        assert f"filter {typed}: {len(kept)} of {total}" in driver.screen
        await driver.press("escape")
        await driver.settle()
        assert len(driver.column("what")) == total
        assert "filter kind" not in driver.screen

    play(app_on(example, root), script)


RECORD: Record = {"name": "aten::linalg_qr", "kind": "op", "share": 23.9, "calls": None}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", True),
        ("QR", True),
        ("rq", False),
        ("share>", True),
        ("share>23", True),
        ("share>23.9%", False),
        ("share>=23.9 kind:o", True),
        ("kind:gap", False),
        ("calls<5", False),  # not known
        ("share>x", True),
        ("nonsense:1", False),
    ],
)
def test_filters_say_what_they_say(text: str, kept: bool) -> None:
    assert parse(text)(RECORD) is kept


@given(st.text(max_size=30))
def test_whatever_is_typed_is_a_filter(text: str) -> None:
    assert parse(text)(RECORD) in (True, False)


def test_n_steps_through_the_hits_and_round(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("n")
        assert driver.said[-1].startswith("next hit: nothing is filtered")
        await driver.press("/")
        await driver.type("share>2")
        await driver.press("enter")
        await driver.settle()
        seen = []
        for key in ("n", "n", "n", "N"):
            await driver.press(key)
            await driver.settle()
            seen.append(driver.app.selection.key)
        assert seen == ["gap:launch", "gap:host", "aten::linalg_qr", "gap:host"]

    play(app_on(example, root), script)


# --- sorting


def test_sorting_by_key_and_header_keeps_the_selected_row(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("j", "j")  # host work
        for _ in range(20):
            await driver.press("s")
            await driver.settle()
            if driver.app.bottlenecks.first.by == "ms":
                break
        times = [float(cell) for cell in driver.column("ms/step")]
        assert times == sorted(times, reverse=True)
        assert driver.app.selection.key == "gap:host"
        assert driver.app.bottlenecks.first.cursor_row == driver.column("what").index("host work (gap)")
        await driver.press("S")
        await driver.settle()
        assert [float(cell) for cell in driver.column("ms/step")] == times[::-1]
        await driver.pilot.click(driver.app.bottlenecks.first, offset=(2, 0))  # the header "what"
        await driver.settle()
        assert driver.column("what") == sorted(driver.column("what"), key=str.lower)
        assert driver.app.selection.key == "gap:host"

    play(app_on(example, root), script)


def test_rows_without_a_value_come_last_and_ties_by_key(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        grid = driver.app.bottlenecks.first
        for _ in range(20):
            await driver.press("s")
            await driver.settle()
            if grid.by == "calls":
                break
        for key in ("S", "S"):
            await driver.press(key)
            await driver.settle()
            calls = driver.column("calls")
            assert [cell == "–" for cell in calls] == sorted(cell == "–" for cell in calls)
            ones = [line.key for line, cell in zip(grid.shown, calls, strict=True) if cell == "1"]
            assert len(ones) > 1
            assert ones == sorted(ones)

    play(app_on(example, root), script)


def test_what_is_scrolled_to_stays_where_columns_and_numbers_change(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        grid, view = driver.app.bottlenecks.first, driver.app.bottlenecks
        driver.app.set_filter("kind:op")  # its line is there from now on
        await driver.press(*"j" * 15)
        await driver.settle()
        before, row = grid.scroll_y, grid.selected
        assert before > 0
        view.suppose("mm=2x")
        await driver.until(lambda: "then, ms" in driver.screen and bool(view.told.line))
        assert (grid.scroll_y, grid.selected) == (before, row)

    play(app_on(example, root), script, (60, 16))


# --- another run


def test_another_run_stands_beside_every_row_and_deltas_add_to_the_steps(root: Path, example: Path) -> None:
    add_example(root, "before", slower=1.3)

    async def script(driver: Driver) -> None:
        await driver.press("c")
        await driver.settle()
        assert driver.app.screen.query_one(OptionList).option_count == 1
        assert "before" in driver.screen
        await driver.press("enter")
        await driver.until(
            lambda: driver.app.bottlenecks.found is not None and bool(driver.app.bottlenecks.found.compared)
        )
        found = driver.app.bottlenecks.found
        assert found is not None
        assert sum(row.delta_ns or 0.0 for row in found.rows) == pytest.approx(found.delta_ns)
        assert found.delta_ns == pytest.approx(39_358_541 * (1 - 1.3), rel=0.01)
        assert "A is before; A 51.2 ms, B 39.4 ms: B is 11.8 ms faster" in driver.screen
        driver.app.bottlenecks.first.sort_by("delta")
        await driver.settle()
        deltas = [float(cell) for cell in driver.column("B - A")[:-1] if cell != "–"]  # without the others
        assert deltas == sorted(deltas, reverse=True)
        assert deltas[-1] < deltas[0]
        await driver.press("c")
        await driver.until(lambda: "B - A" not in driver.screen)

    play(app_on(example, root), script, (120, 40))


def test_runs_that_have_nothing_in_common_are_not_compared_and_it_says_so(root: Path, example: Path) -> None:
    add_small(root, ops(["my::a", "my::b"]), "other")

    async def script(driver: Driver) -> None:
        await driver.press("c", "enter")
        await driver.until(lambda: "not compared with other" in driver.screen)
        assert "B - A" not in driver.screen

    play(app_on(example, root), script, (120, 40))


def test_a_broken_run_to_compare_with_is_a_message_and_the_view_stays(root: Path, example: Path) -> None:
    (add_small(root, [], "broken") / "rank0.trace.json").write_text("{")

    async def script(driver: Driver) -> None:
        await driver.press("c", "enter")
        await driver.until(lambda: bool(driver.said))
        assert "broken/rank0.trace.json" in driver.said[-1]
        assert "linalg_qr" in driver.screen
        assert driver.app.other is None
        await driver.press("c")
        await driver.settle()
        assert "Compare with" in driver.screen

    play(app_on(example, root), script)


def test_without_another_run_comparing_says_so(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("c")
        assert driver.said[-1] == "compare: there is no other run to compare with; record one with `qrprof trace`"

    play(app_on(example, root), script)


# --- one selection


def test_a_selection_is_carried_to_the_other_views_and_back(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("j", "j")
        await driver.settle()
        assert driver.app.selection.key == "gap:host"
        for key in ("2", "3", "4", "1"):
            await driver.press(key)
            await driver.settle()
        assert driver.app.shown == "bottlenecks"
        assert driver.app.bottlenecks.first.cursor_row == 2

    play(app_on(example, root), script)
