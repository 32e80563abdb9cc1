"""The views of launches and of QR panels, in the real app."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from tui_runs import SIZES, Driver, add_small, app_on, calm, ops, play
from tui_traces import add_recorded

from qrprof.profiler.facts import Facts, find_facts
from qrprof.profiler.launches import find_launches, per_step
from qrprof.profiler.load import load_run
from qrprof.profiler.runinfo import RunInfo
from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.views.launches import LaunchesView
from qrprof.tui.app.views.panels import PanelsView
from qrprof.tui.app.widgets.grid import FEW, MOST, Grid

Script = Callable[[Driver], Awaitable[None]]
LAUNCHES: Final = "3"
PANELS: Final = "4"


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    calm(monkeypatch, tmp_path)
    return tmp_path


def on_view(
    key: str, folder: Path, root: Path, script: Script, size: tuple[int, int] = (80, 24), **options: Any
) -> None:
    """Run the script once the view of this key is shown."""

    async def opened(driver: Driver) -> None:
        await driver.press(key)
        await driver.until(lambda: bool(driver.app.view and driver.app.view.ready))
        await script(driver)

    play(app_on(folder, root, **options), opened, size)


def facts_of(folder: Path) -> tuple[Facts, RunInfo]:
    run, trace = load_run(folder)
    return find_facts(trace, run), run


# --- launches


@pytest.mark.parametrize("size", [SIZES[0], SIZES[-1]])
def test_launches_by_op(root: Path, size: tuple[int, int]) -> None:
    folder = add_recorded(root, "adamw_fused")
    sums = per_step(find_launches(*facts_of(folder)).calls, "op")

    async def script(driver: Driver) -> None:
        assert "373 launches of 373 items of device work" in " ".join(driver.screen.split())
        assert "a CUDA graph would save at most 11.2 ms" in " ".join(driver.screen.split())
        assert driver.column("op") == [name.removeprefix("aten::") for name in sums["op"]]
        assert [float(cell) for cell in driver.column("launches")] == sums["launches"].tolist()
        assert [float(cell) for cell in driver.column("API ms")] == pytest.approx(
            (sums["api_ns"] / 1e6).tolist(), rel=5e-3
        )
        assert all(len(line) <= size[0] for line in driver.lines)

    on_view(LAUNCHES, folder, root, script, size)


def test_launches_by_what_is_launched(root: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("b")
        await driver.settle()
        kernels = driver.column("what is launched")
        assert "Memcpy DtoD (Device -> Device)" in kernels
        assert max(map(len, kernels)) > 80
        assert any(name not in driver.screen for name in kernels)
        assert "…" in driver.screen
        await driver.press("b")
        await driver.settle()
        assert driver.column("op")[0] == "copy_"

    on_view(LAUNCHES, add_recorded(root, "adamw_fused"), root, script)


def test_a_name_that_is_cut_stands_below_in_full(root: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("b", "G")
        await driver.settle()
        name = driver.column("what is launched")[driver.app.query_one(LaunchesView).first.cursor_row]
        assert name in driver.screen

    on_view(LAUNCHES, add_recorded(root, "adamw_fused"), root, script, (200, 60))


def test_launches_are_sorted_and_the_cursor_stays_on_its_row(root: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("j", "j")
        chosen = driver.app.selection.key
        assert chosen == "aten::mm"
        await driver.press("s", "s")
        await driver.settle()
        view = driver.app.query_one(LaunchesView)
        assert view.first.by == "empty_us"
        waits = [float(cell) for cell in driver.column("wait us") if cell != "–"]
        assert waits == sorted(waits, reverse=True)
        assert view.first.selected == chosen
        await driver.press("S")
        await driver.settle()
        waits = [float(cell) for cell in driver.column("wait us") if cell != "–"]
        assert waits == sorted(waits)
        assert view.row()[0] == "mm"  # type: ignore[index]

    on_view(LAUNCHES, add_recorded(root, "adamw_fused"), root, script)


def test_a_click_on_a_header_sorts_by_it_and_again_the_other_way(root: Path) -> None:
    async def script(driver: Driver) -> None:
        header = next(line for line in driver.lines if line.startswith("op "))
        y, x = driver.lines.index(header), header.index("launches") + 2
        await driver.pilot.click(offset=(x, y))
        await driver.settle()
        counts = [float(cell) for cell in driver.column("launches")]
        assert counts == sorted(counts, reverse=True)
        await driver.pilot.click(offset=(x, y))
        await driver.settle()
        assert [float(cell) for cell in driver.column("launches")] == sorted(counts)

    on_view(LAUNCHES, add_recorded(root, "adamw_fused"), root, script)


def test_launches_are_filtered_and_counted(root: Path) -> None:
    async def script(driver: Driver) -> None:
        driver.app.set_filter("layer_norm launches>8")
        await driver.settle()
        assert driver.column("op") == ["native_layer_norm_backward"]
        assert "1 of 2" in driver.screen
        await driver.press("escape")
        await driver.settle()
        assert len(driver.column("op")) > 5

    on_view(LAUNCHES, add_recorded(root, "adamw_fused"), root, script)


def test_launches_carry_the_selection(root: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("j")
        key = driver.app.selection.key
        await driver.press("1")
        await driver.settle()
        row = driver.app.bottlenecks.row_selected()
        assert row is not None
        assert row.key == key == "aten::add_"

    on_view(LAUNCHES, add_recorded(root, "adamw_fused"), root, script)


def test_launches_beside_those_of_another_run(root: Path) -> None:
    async def script(driver: Driver) -> None:
        driver.app.compare_with(other)
        view = driver.app.query_one(LaunchesView)
        await driver.until(lambda: any(head.id == "delta" for head in view.first.heads))
        assert f"A is {other.name}" in " ".join(driver.screen.split())
        sums = per_step(find_launches(*facts_of(other)).calls, "op")
        before = dict(zip(sums["op"], sums["api_ns"], strict=True))
        now = per_step(find_launches(*facts_of(folder)).calls, "op")
        deltas = [float(cell.replace("+", "")) for cell in driver.column("B - A ms")]
        was = np.array([before.get(op, 0.0) for op in now["op"]])
        assert deltas == pytest.approx(((now["api_ns"] - was) / 1e6).tolist(), rel=5e-3, abs=1e-6)
        assert (was > 0).sum() > 3
        view.first.sort_by("delta")
        await driver.settle()
        assert [float(cell) for cell in driver.column("B - A ms")] == sorted(deltas, reverse=True)

    folder, other = add_recorded(root, "adamw_fused"), add_recorded(root, "loader_bound", "20260101-000000-other")
    on_view(LAUNCHES, folder, root, script, (120, 40))


@pytest.mark.parametrize("size", [SIZES[0], SIZES[-1]])
def test_a_program_on_a_cpu_has_no_launches_and_no_qr(root: Path, size: tuple[int, int]) -> None:
    async def script(driver: Driver) -> None:
        assert "there are none to show: no launches of device work in the steps" in " ".join(driver.screen.split())
        await driver.press("j", "G", "s", "S", "b", "y")
        await driver.press("4")
        await driver.settle()
        assert "no QR calls in the recorded steps" in driver.screen
        await driver.press("j", "G", "s", "S", "y")
        assert driver.app.table().rows == []

    on_view(LAUNCHES, add_small(root, ops(["aten::mm", "aten::add"])), root, script, size)


# --- rows


def test_the_row_of_the_others_is_opened_by_enter(root: Path) -> None:
    rows = launched([f"aten::op{number:03}" for number in range(700)])

    async def script(driver: Driver) -> None:
        assert len(driver.column("op")) == FEW + 1
        assert driver.column("op")[-1] == f"{700 - FEW} others"
        assert sum(float(cell) for cell in driver.column("launches")) == 700
        await driver.press("G", "enter")
        await driver.settle()
        assert len(driver.column("op")) == MOST + 1  # never more
        assert driver.column("op")[-1] == f"{700 - MOST} others"

    on_view(LAUNCHES, add_small(root, rows), root, script)


def launched(names: list[str]) -> list[dict[str, Any]]:
    """A step of ops that launch a kernel each."""
    rows = [
        event("user_annotation", f"qrprof.step#{number}", at) for number, at in ((10, 0), (11, 20 * len(names) + 20))
    ]
    for place, name in enumerate(names, start=1):
        at = 20 * place
        rows += [
            event("cpu_op", name, at, 15),
            event("cuda_runtime", "cudaLaunchKernel", at + 1, 5, correlation=place),
            event("kernel", f"kernel_{name}", at + 8, 9, correlation=place, device=0, stream=7),
        ]
    return rows


def event(kind: str, name: str, at: float, us: float = 0, **args: Any) -> dict[str, Any]:
    thread = args.get("stream", 1)
    return {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": thread, "ts": at, "dur": us, "args": args}


NAMES: Final = [
    "[/]",
    "k[red]z",
    "array<char*>[ok]",
    "\x1b[31m\x07a",
    "漢字漢字",
    "e\u0301\u202e",
    "x" * 10_000,
    "\0others",
]


@pytest.mark.parametrize("size", [SIZES[0], SIZES[-1]])
def test_any_name_is_a_row(root: Path, size: tuple[int, int]) -> None:
    async def script(driver: Driver) -> None:
        for _ in range(2):
            assert len(driver.column("launches")) == len(NAMES)
            await driver.press(*"j" * len(NAMES), "s", "y", "b")
            await driver.settle()
        assert not any(char in driver.screen for char in "\x1b\x07\u202e")
        assert all(len(line) <= size[0] for line in driver.lines if line.isascii())

    on_view(LAUNCHES, add_small(root, launched(NAMES)), root, script, size)


def test_nothing_matches_a_filter(root: Path) -> None:
    async def script(driver: Driver) -> None:
        for view in "1234":
            await driver.press(view)
            await driver.settle()
            driver.app.set_filter("zzzzzz")
            await driver.settle()
            await driver.press("j", "k", "g", "G", "n", "N", "s", "y", "enter")
            await driver.settle()
            driver.app.set_filter("")

    on_view(LAUNCHES, add_recorded(root, "qr_loop_8x512"), root, script)


# --- panels


COLUMNS: Final = [
    ["geqrf 512 x 512", "64", "244", "242", "197", "14.1", "19.7", "13.1"],
    ["geqrf 448 x 448", "64", "240", "185", "195", "13.7", "18.6", "13.1"],
]


@pytest.mark.parametrize("size", SIZES)
def test_block_columns_of_a_qr(root: Path, size: tuple[int, int]) -> None:
    async def script(driver: Driver) -> None:
        text = " ".join(driver.screen.split())
        assert driver.column("QR call") == ["linalg_qr 512 x 512 float"]
        assert (driver.column("calls"), driver.column("batch")) == (["8"], ["1"])
        assert "cuSOLVER linalg_qr 512 x 512 float: 8 calls a step, 1.88 ms each, 15.0 ms a step, 190 GFLOP/s" in text
        assert "g geqr2 73.7 % t larft 5.0 %" in text
        columns = driver.app.query_one(".columns", Grid)
        heads, rows = columns.table()
        assert [row[:4] for row in rows[:2]] == [row[:4] for row in COLUMNS]
        assert rows[4][heads.index("bar")] == "gggggggggggg"  # the longest: nothing but geqr2
        if size[0] >= 80:
            wanted = [
                heads.index(head) for head in ("block column", "nb", "us", "GFLOP/s", "geqr2", "larft", "larfb", "gap")
            ]
            assert [[row[place] for place in wanted] for row in rows[:2]] == COLUMNS
        assert all(len(line) <= size[0] for line in driver.lines)

    on_view(PANELS, add_recorded(root, "qr_loop_8x512"), root, script, size)


def test_a_bar_is_as_long_as_its_column_beside_the_longest(root: Path) -> None:
    async def script(driver: Driver) -> None:
        columns = driver.app.query_one(".columns", Grid)
        heads, rows = columns.table()
        bars, times = [row[heads.index("bar")] for row in rows], [float(row[heads.index("us")]) for row in rows]
        assert max(map(len, bars)) == 12
        assert [len(bar) for bar in bars] == pytest.approx([12 * time / max(times) for time in times], abs=1)
        assert set("".join(bars)) <= set("gtbqc.")

    on_view(PANELS, add_recorded(root, "qr_loop_8x512"), root, script, (120, 40))


def test_the_shape_selected_is_taken_apart(root: Path) -> None:
    async def script(driver: Driver) -> None:
        view = driver.app.query_one(PanelsView)
        columns = driver.app.query_one(".columns", Grid)
        assert columns.table()[1][0][0] == "geqrf 2048 x 2048"
        await driver.press("j")
        await driver.settle()
        assert driver.app.selection.key == "aten::linalg_qr"
        assert columns.table()[1][0][0] == "geqrf 512 x 512"
        await driver.press("tab", "j", "j")
        assert view.row()[0] == "geqrf 384 x 384"  # type: ignore[index]
        assert view.table().columns[0] == "block column"

    on_view(PANELS, add_recorded(root, "soap_qr"), root, script)


def test_qr_calls_beside_those_of_another_run(root: Path) -> None:
    async def script(driver: Driver) -> None:
        driver.app.compare_with(other)
        view = driver.app.query_one(PanelsView)
        await driver.until(lambda: any(head.id == "delta" for head in view.first.heads))
        deltas = dict(zip(driver.column("QR call"), driver.column("B - A ms"), strict=True))
        assert deltas["linalg_qr 2048 x 2048 float"] == "+85.0"
        assert float(deltas["linalg_qr 512 x 512 float"]) == pytest.approx(41.0 - 15.0, abs=0.1)
        view.first.sort_by("delta")
        await driver.settle()
        assert driver.column("B - A ms") == sorted(deltas.values(), key=float, reverse=True)

    folder, other = add_recorded(root, "soap_qr"), add_recorded(root, "qr_loop_8x512", "20260101-000000-other")
    on_view(PANELS, folder, root, script)


def test_what_the_cursor_is_on_is_optimized_where_the_view_does_not_have_what_was_selected(root: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("1", "j")
        await driver.settle()
        assert driver.app.selection.key != "aten::linalg_qr"
        selected = driver.app.selection
        await driver.press("4")
        await driver.settle()
        await driver.press("o")
        await driver.settle()
        assert driver.lines[-2].startswith(" optimize aten::linalg_qr ")
        await driver.press("escape")
        assert driver.app.selection == selected  # other views still have it

    on_view(PANELS, add_recorded(root, "qr_loop_8x512"), root, script)


def test_qr_on_a_cpu_is_not_split_and_says_so(root: Path) -> None:
    rows = ops(["aten::linalg_qr", "aten::mm"])
    rows[2]["args"] = {"Input Dims": [[3, 64, 32]], "Input type": ["float"]}

    async def script(driver: Driver) -> None:
        assert driver.column("QR call") == ["linalg_qr 3 x 64 x 32 float"]
        assert driver.column("batch") == ["3"]
        assert "LAPACK: not split" in driver.screen
        assert " ".join(driver.screen.split()).count("timed under the profiler: ") == 1
        assert not driver.app.query_one(".columns", Grid).display

    on_view(PANELS, add_small(root, rows), root, script)


@pytest.mark.parametrize("view", [LAUNCHES, PANELS])
def test_ascii(root: Path, view: str) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("s", "S")
        await driver.settle()
        assert driver.screen.isascii()

    on_view(view, add_recorded(root, "qr_loop_8x512"), root, script, glyphs=Glyphs(ascii=True))
