"""What the terminal UI reads and writes: copies, exports, the state file, the editor, and runs that go wrong."""

import asyncio
import csv
import errno
import json
import os
import shutil
import sqlite3
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from swap_cases import verified
from textual.widgets import Input
from tui_runs import Driver, add_example, add_small, app_on, calm, ops, play

from qrprof.planner.ledger import opened
from qrprof.tui.app import outside
from qrprof.tui.app.session import Session
from qrprof.tui.app.state import Kept, load_state, save_state, state_file
from qrprof.tui.app.views.start import EXAMPLE


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    calm(monkeypatch, tmp_path)
    return tmp_path


@pytest.fixture
def example() -> Path:
    return EXAMPLE


@pytest.fixture
def own(root: Path) -> Path:
    """A copy of the example, to be deleted or broken."""
    return add_example(root)


# --- copies


def test_the_row_is_copied_as_tab_separated_text_and_the_view_as_markdown(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        shown = driver.app.table()
        await driver.press("y")
        await driver.settle()
        assert driver.app.clipboard == "\t".join(shown.rows[0])
        assert driver.app.clipboard.startswith("linalg_qr\t9.43\t23.9 %")
        assert "copied the row" in driver.said[-1]
        assert "some terminals refuse" in driver.said[-1]
        await driver.press("Y")
        await driver.settle()
        lines = driver.app.clipboard.splitlines()
        assert len(lines) == 2 + len(shown.rows)
        assert lines[0].startswith("| what | ms/step | share |")

    play(app_on(example, root), script)


def program(root: Path, name: str, text: str) -> Path:
    path = root / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_machines_own_clipboard_is_given_the_text_too(root: Path, example: Path) -> None:
    program(root, "xclip", f"import sys; open({str(root / 'taken')!r}, 'w').write(sys.stdin.read())")

    async def script(driver: Driver) -> None:
        await driver.press("y")
        await driver.until((root / "taken").exists)
        await driver.settle()
        assert (root / "taken").read_text() == driver.app.clipboard

    play(app_on(example, root), script)


def test_a_clipboard_program_that_fails_is_passed_over(root: Path) -> None:
    program(root, "wl-copy", "import sys; sys.exit(1)")
    assert not outside.to_local_clipboard("x")
    program(root, "xclip", "import sys; sys.stdin.read()")
    assert outside.to_local_clipboard("x")


# --- exports


async def export(driver: Driver, name: str) -> None:
    await driver.press("x")
    await driver.settle()
    driver.app.query_one(Input).value = name
    await driver.press("enter")
    await driver.settle()


def test_exports_are_what_is_shown(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("/")
        await driver.type("kind:gap")
        await driver.press("enter")
        await driver.settle()
        shown = driver.app.table()
        for name in ("gaps.csv", "gaps.json", "gaps.svg"):
            await export(driver, name)
            assert driver.said[-1] == f"wrote {root / name}"
        with (root / "gaps.csv").open(newline="", encoding="utf-8") as file:
            assert list(csv.reader(file)) == [list(shown.columns), *map(list, shown.rows)]
        rows = json.loads((root / "gaps.json").read_text())["rows"]
        assert [row["what"] for row in rows] == driver.column("what")
        svg = (root / "gaps.svg").read_text()
        assert "launch-bound" in svg
        assert "linalg_qr" not in svg
        assert "export&#160;to" not in svg  # the line in which the name was typed

    play(app_on(example, root), script)


def test_an_export_that_cannot_be_is_a_message(root: Path, example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **named: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def script(driver: Driver) -> None:
        await export(driver, "x.txt")
        assert driver.said[-1] == f"{root / 'x.txt'} has none of the endings .csv, .json, .svg; give one"
        await export(driver, "no/such/folder.csv")
        assert driver.said[-1].endswith("No such file or directory; name another file")
        with monkeypatch.context() as patched:
            patched.setattr(Path, "write_text", full)
            await export(driver, "x.csv")
        assert driver.said[-1] == f"cannot write {root / 'x.csv'}: No space left on device; name another file"
        assert not list(root.glob("*.csv")) + list(root.glob(".x*"))
        await export(driver, "x.csv")
        assert driver.said[-1] == f"wrote {root / 'x.csv'}"

    play(app_on(example, root), script)


def test_a_ledger_for_which_there_is_no_room_is_a_message(root: Path, own: Path) -> None:
    """As SQLite says it, of a file that may not grow."""
    connect, most = sqlite3.connect, 1000

    def full(path: Path, **named: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(path, **named)
        connection.execute("PRAGMA page_size = 512")  # no room for two records
        connection.execute(f"PRAGMA max_page_count = {most}")
        return connection

    async def script(driver: Driver) -> None:
        await driver.press("6")
        await driver.until(lambda: bool(driver.app.suggestions.problem))
        assert "database or disk is full; make room" in " ".join(driver.screen.split())
        await driver.press("1")
        await driver.settle()
        assert "linalg_qr" in driver.screen

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sqlite3, "connect", full)
        verified(root)
        with opened(root) as connection:
            most = connection.execute("PRAGMA page_count").fetchone()[0]
        play(app_on(own, root), script)


# --- the editor


def test_a_command_of_ones_own_is_shown_as_it_is_typed() -> None:
    assert outside.as_typed(outside.command_of(["swaps", "accept", "a b"])) == "qrprof swaps accept 'a b'"
    assert outside.as_typed(["vi", "+68", "train.py"]) == "vi +68 train.py"


@pytest.mark.parametrize(
    ("editor", "command"),
    [
        ("vi", ["vi", "+68", "/a/train.py"]),
        ("emacs -nw", ["emacs", "-nw", "+68", "/a/train.py"]),
        ("code --wait", ["code", "--wait", "--goto", "/a/train.py:68"]),
        ("subl", ["subl", "/a/train.py:68"]),
        ("", None),
    ],
)
def test_editors_are_called_as_they_want_it(editor: str, command: list[str] | None) -> None:
    assert outside.editor_command("/a/train.py:68", {"EDITOR": editor}) == command


def test_without_an_editor_the_place_is_copied_and_it_says_so(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("e")
        await driver.settle()
        assert driver.app.clipboard == "block_soap.py:68"
        assert "since $EDITOR is not set" in driver.said[-1]

    play(app_on(example, root), script)


# --- what survives a restart


def test_view_selection_sort_filter_and_theme_survive(root: Path, example: Path) -> None:
    first = app_on(example, root)

    async def leave(driver: Driver) -> None:
        await driver.press("t", "j", "j", "s", "S", "/")
        await driver.type("g")
        await driver.press("enter")
        await driver.settle()

    play(first, leave)
    save_state(state_file(), first.kept())
    kept = load_state(state_file())
    assert kept == Kept("bottlenecks", "gap:host", "what", "g", "qrprof-light")
    second = app_on(example, root, kept=kept)

    async def come_back(driver: Driver) -> None:
        assert driver.app.theme == "qrprof-light"
        assert driver.app.kept() == kept
        assert driver.app.bottlenecks.row_selected() is not None
        assert "filter g: " in driver.screen
        assert driver.column("what") == sorted(driver.column("what"), key=str.lower)[::-1]

    play(second, come_back)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 2, "theme": "x"}', '{"schema": 1, "theme": 7, "sort": "no"}']
)
def test_a_state_file_that_says_nothing_is_not_needed(root: Path, example: Path, text: str) -> None:
    state_file().parent.mkdir(parents=True)
    state_file().write_text(text)

    async def script(driver: Driver) -> None:
        assert "linalg_qr" in driver.screen

    play(app_on(example, root, kept=load_state(state_file())), script)


def test_a_state_that_cannot_be_written_is_no_error(root: Path) -> None:
    (root / "cache").write_text("a file")
    save_state(state_file(), Kept(view="timeline"))
    assert load_state(state_file()) == Kept()


# --- runs that go wrong


def test_a_run_deleted_under_the_app_is_still_shown_and_reading_it_again_says_so(root: Path, own: Path) -> None:
    async def script(driver: Driver) -> None:
        shutil.rmtree(own)
        await driver.press("r")
        await driver.until(lambda: bool(driver.said))
        assert str(own) in driver.said[-1]
        for key in ("2", "3", "4", "1"):
            await driver.press(key)
            await driver.settle()
        assert "linalg_qr" in driver.screen

    play(app_on(own, root), script)


def test_a_run_deleted_before_it_is_read_is_a_message(root: Path, own: Path) -> None:
    shutil.rmtree(own)

    async def script(driver: Driver) -> None:
        assert driver.app.bottlenecks.problem
        assert "has no rank 0" in " ".join(driver.screen.split())
        await driver.press("y")
        assert driver.said[-1] == "copy row: nothing is loaded yet"

    play(app_on(own, root), script)


def test_a_broken_trace_is_a_message_and_a_mended_one_is_read(root: Path) -> None:
    folder = add_small(root, [], "broken")
    trace = folder / "rank0.trace.json"
    trace.write_text('{"traceEvents": [{"ph": "X", "ca')

    async def script(driver: Driver) -> None:
        assert driver.app.bottlenecks.problem
        for key in ("2", "3", "4", "1"):
            await driver.press(key)
            await driver.settle()
            assert driver.screen.strip()
        shutil.rmtree(folder)
        shutil.copytree(add_example(root, "good"), folder)
        await driver.press("r")
        await driver.until(lambda: "linalg_qr" in driver.screen)

    play(app_on(folder, root), script)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"traceEvents": [{"ph": "X", "ca', "the file breaks off"),
        ("", "is empty"),
        ("not a trace", "is not a trace"),
    ],
)
def test_a_trace_that_cannot_be_read_is_one_sentence_with_its_path(root: Path, text: str, reason: str) -> None:
    folder = add_small(root, [], "broken")
    (folder / "rank0.trace.json").write_text(text)

    async def script(driver: Driver) -> None:
        problem = driver.app.bottlenecks.problem or ""
        assert problem.startswith(f"{folder / 'rank0.trace.json'} ")
        assert reason in problem
        assert "".join(problem.split()) in "".join(driver.screen.split())

    play(app_on(folder, root), script)


def test_a_worker_that_fails_in_its_own_way_is_a_message(root: Path, own: Path) -> None:
    (own / "rank0.events.parquet").write_bytes(b"PAR1 no columns")

    async def script(driver: Driver) -> None:
        assert driver.app.bottlenecks.problem
        await driver.press("?")
        await driver.settle()
        assert len(driver.app.screen_stack) == 2

    play(app_on(own, root), script)


def test_the_bytes_of_a_trace_are_told_while_it_is_read(root: Path) -> None:
    folder = add_small(root, ops(["my::op"]))
    session = Session(folder)
    assert session.problem() is None
    size = (folder / "rank0.trace.json").stat().st_size
    assert (session.read.done, session.read.total) == (size, size)


def test_how_much_was_read_stands_where_the_view_will_be(
    root: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = Event()

    def slow(session: Session, other: Session | None) -> Any:
        session.read.tell(64 << 20, 256 << 20)
        released.wait(60)
        return load(session, other)

    app = app_on(own, root)
    load = app.bottlenecks.load
    monkeypatch.setattr(app.bottlenecks, "load", slow)

    async def watch() -> None:
        async with app.run_test() as pilot:
            driver = Driver(app, pilot)
            while "[#####               ] 25.0 % of 256 MiB" not in driver.screen:
                await pilot.pause(0.02)
            released.set()
            await driver.until(lambda: "linalg_qr" in driver.screen)

    asyncio.run(watch())


def test_one_can_leave_while_a_run_is_read(root: Path, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released, reading = Event(), Event()

    def slow(session: Session, other: Session | None) -> Any:
        reading.set()
        released.wait(60)

    app = app_on(own, root)
    monkeypatch.setattr(app.bottlenecks, "load", slow)

    async def leave() -> None:
        async with app.run_test() as pilot:
            while not reading.is_set():
                await pilot.pause()
            await pilot.press("q")

    asyncio.run(leave())
    assert app.return_code == 0
    assert not released.is_set()  # and nobody waited for it
    released.set()
