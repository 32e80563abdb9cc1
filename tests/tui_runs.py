"""The real app, driven by its keys, on runs that are ours.

QRPROF_SCREENS=write writes the golden screens anew.
"""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from textual.message import Message
from textual.pilot import Pilot
from textual.worker import WorkerCancelled

from qrprof.profiler.store import FOLDER
from qrprof.tui.app.app import QrprofApp
from qrprof.tui.app.session import Session
from qrprof.tui.app.views.start import EXAMPLE

SIZES: Final = ((60, 16), (80, 24), (120, 40), (200, 60))
SCREENS: Final = Path(__file__).parent / "screens"
SMALL: Final = Path(__file__).parent / "data" / "small_run"
CHARACTERS: Final = {
    " ": "space",
    "=": "equals_sign",
    "_": "underscore",
    ">": "greater_than_sign",
    ":": "colon",
    ".": "full_stop",
    "/": "slash",
    '"': "quotation_mark",
    ",": "comma",
    "?": "question_mark",
    "+": "plus",
    "-": "minus",
    "[": "left_square_bracket",
    "]": "right_square_bracket",
}


def calm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the person's: no caches, no configuration, no programs, no colours."""
    for name in ("NO_COLOR", "EDITOR", "VISUAL", "TEXTUAL_THEME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def run_folder(root: Path, name: str) -> Path:
    return root / FOLDER / "runs" / name


def add_example(root: Path, name: str = "example", slower: float = 1.0) -> Path:
    """The example run in a working folder; its unprofiled steps `slower` times as long."""
    folder = run_folder(root, name)
    shutil.copytree(EXAMPLE, folder)
    if slower != 1.0:
        change(folder, lambda record: stretch(record, slower))
    return folder


def add_small(root: Path, events: list[dict[str, Any]], name: str = "20260131-120000-train") -> Path:
    """The small run with these events of its trace."""
    folder = run_folder(root, name)
    shutil.copytree(SMALL, folder)
    change(folder, lambda record: record.update(linalg=[]))
    (folder / "rank0.trace.json").write_text(json.dumps({"traceEvents": events}))
    return folder


def change(folder: Path, how: Callable[[dict[str, Any]], object]) -> None:
    record = json.loads((folder / "run.json").read_text())
    how(record)
    (folder / "run.json").write_text(json.dumps(record))


def stretch(record: dict[str, Any], slower: float) -> None:
    for block in record["unprofiled"]:
        block["durations_ns"] = [round(ns * slower) for ns in block["durations_ns"]]


def ops(names: list[str]) -> list[dict[str, Any]]:
    """A recorded step in which these ops run one after the other, 10 us each."""
    events = [mark(10, 0), mark(11, 10 * len(names) + 1)]
    return events + [event("cpu_op", name, 1 + 10 * place, 10) for place, name in enumerate(names)]


def mark(number: int, at: float) -> dict[str, Any]:
    return event("user_annotation", f"qrprof.step#{number}", at, 1)


def event(kind: str, name: str, at: float, us: float) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "ts": at, "dur": us, "args": {}}


@dataclass(frozen=True)
class Driver:
    app: QrprofApp
    pilot: Pilot[None]

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(CHARACTERS.get(key, key))

    async def type(self, text: str) -> None:
        await self.press(*text)

    async def settle(self) -> None:
        """Wait for what was asked for: workers, their messages, and the screen; not for an optimizer's process."""
        for _ in range(3):
            workers = [worker for worker in self.app.workers if worker.group != "process"]
            for worker in workers:
                with suppress(WorkerCancelled):  # a newer one took its place, or the app is being left
                    await worker.wait()
            await self.pilot.pause()

    async def until(self, reached: Callable[[], bool], looks: int = 500) -> None:
        for _ in range(looks):
            if reached():
                return await self.settle()
            await self.pilot.pause(0.02)
        raise AssertionError(f"never came, on this screen:\n{self.screen}")

    async def suppose(self, text: str) -> None:
        """Type a what-if and wait for its answer."""
        await self.press("w")
        await self.type(text)
        told = self.app.bottlenecks
        await self.until(lambda: told.told.text == text and bool(told.told.line or told.told.problem))

    @property
    def screen(self) -> str:
        """What stands on the terminal."""
        strips = self.app.screen._compositor.render_strips()
        return "".join("".join(segment.text for segment in strip).rstrip() + "\n" for strip in strips)

    @property
    def lines(self) -> list[str]:
        return self.screen.splitlines()

    @property
    def said(self) -> list[str]:
        """The messages, the last one last."""
        return [one.message for one in self.app._notifications]

    def column(self, header: str) -> list[str]:
        """The cells of a column of the table that is shown."""
        shown = self.app.table()
        place = next(index for index, one in enumerate(shown.columns) if one.split(" ▼")[0].split(" ▲")[0] == header)
        return [row[place] for row in shown.rows]


def play(
    app: QrprofApp,
    script: Callable[[Driver], Awaitable[None]],
    size: tuple[int, int] = (80, 24),
    hook: Callable[[Message], None] | None = None,
) -> None:
    """Run the app on a terminal of this size, and the script once what it opens is shown; `hook` sees all messages."""

    async def run() -> None:
        async with app.run_test(size=size, notifications=True, message_hook=hook) as pilot:
            driver = Driver(app, pilot)
            view = app.view
            if view:
                await driver.until(lambda: view.ready or bool(view.problem))
            await driver.settle()
            await script(driver)

    asyncio.run(run())


@cache
def example_session() -> Session:
    """The example run where it lies, ranked once for all tests that leave it as it is."""
    return Session(EXAMPLE)


def app_on(folder: Path | None, root: Path, **options: Any) -> QrprofApp:
    session = example_session() if folder == EXAMPLE else Session(folder) if folder else None
    return QrprofApp(session, root, **options)


def check(screen: str, name: str) -> None:
    """Hold a screen against its golden text."""
    path = SCREENS / (name if "." in name else f"{name}.txt")
    if os.environ.get("QRPROF_SCREENS") == "write":
        path.write_text(screen, encoding="utf-8")
    assert screen == path.read_text(encoding="utf-8")
