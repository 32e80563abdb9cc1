"""How the terminal UI starts: what it imports, what plain `qrprof` does, the start screen, and a real terminal."""

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tui_optimizations import add_course
from tui_runs import Driver, add_example, app_on, calm, play

from qrprof.tui.cli import run

TRAINING = """\
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(40):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
"""
IMPORTED = """\
import asyncio, json, sys
from pathlib import Path
from qrprof.tui.app.app import QrprofApp
from qrprof.tui.app.session import Session

async def main():
    app = QrprofApp(Session(Path(sys.argv[1])), Path.cwd())
    before = sorted(set(sys.modules) & set(HEAVY))
    async with app.run_test() as pilot:
        while not app.bottlenecks.ready:
            await pilot.pause(0.02)
        for key in "234561":
            await pilot.press(key)
            await app.workers.wait_for_complete()
            await pilot.pause()
    print(json.dumps([before, sorted(set(sys.modules) & set(HEAVY))]))

HEAVY = ("torch", "triton", "pandas", "pyarrow", "openai", "dask")
asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    calm(monkeypatch, tmp_path)
    return tmp_path


# --- imports


def test_the_first_frame_needs_no_heavy_package_and_no_view_needs_torch(root: Path) -> None:
    folder = add_example(root)
    add_course(root)
    done = subprocess.run([sys.executable, "-c", IMPORTED, folder], capture_output=True, text=True, check=True)
    before, after = json.loads(done.stdout.splitlines()[-1])
    assert before == []
    assert after == ["pandas", "pyarrow"]


# --- the start screen


def test_without_a_run_the_example_can_be_opened(root: Path) -> None:
    async def script(driver: Driver) -> None:
        assert "There is no run here yet." in driver.screen
        await driver.press("down", "enter")
        await driver.until(lambda: "linalg_qr" in driver.screen)
        assert "step 39.4 ms" in driver.lines[0]
        assert not (root / ".qrprof").exists()

    play(app_on(None, root), script)


def test_a_terminal_that_cannot_be_handed_over_gets_the_command_to_type(root: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("enter")
        await driver.type("train.py")
        await driver.press("enter")
        await driver.settle()
        assert driver.said[-1] == "the terminal cannot be handed over; type: qrprof trace train.py"

    play(app_on(None, root), script)


# --- without a terminal


def test_plain_qrprof_into_a_pipe_prints_the_help_as_ever(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_example(root)
    assert run([]) == 0
    assert capsys.readouterr().out.startswith("Usage: qrprof")


def test_the_terminal_ui_into_a_pipe_says_what_to_print(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tui"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("qrprof: the terminal UI needs a terminal; its views are commands too: `qrprof rank`")


def test_a_terminal_that_cannot_draw_gets_no_app(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_example(root)
    monkeypatch.setenv("TERM", "dumb")
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(getattr(sys, stream), "isatty", lambda: True)
    assert run([]) == 0
    assert capsys.readouterr().out.startswith("Usage: qrprof")
    assert run(["tui"]) == 2


# --- a real terminal


@dataclass(frozen=True)
class Terminal:
    """A command on a terminal of its own."""

    process: "subprocess.Popen[bytes]"
    end: int
    seen: bytearray

    def until(self, text: str, seconds: float = 60) -> None:
        """Read until `text` was drawn."""
        limit = time.monotonic() + seconds
        while text.encode() not in self.seen:
            assert time.monotonic() < limit, f"{text!r} never came: {bytes(self.seen[-600:])!r}"
            if select.select([self.end], [], [], 0.1)[0]:
                self.seen.extend(os.read(self.end, 65536))

    def keys(self, text: str) -> None:
        del self.seen[:]
        os.write(self.end, text.encode())

    def code(self) -> int:
        with suppress(OSError):  # the terminal's other end was closed
            while os.read(self.end, 65536):
                pass
        return self.process.wait(60)


@pytest.fixture
def terminal(root: Path) -> Iterator[Terminal]:
    """Plain `qrprof` in the working folder, 100 x 30."""
    main, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    editor = root / "editor"
    editor.write_text(f'#!/bin/sh\necho "$@" > {root / "edited"}\necho opened\n')
    editor.chmod(0o755)
    own = {"TERM": "xterm-256color", "EDITOR": str(editor), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "qrprof", *(["tui"] if not (root / ".qrprof").exists() else [])]
    process = subprocess.Popen(
        command, cwd=root, env=os.environ | own, stdin=child, stdout=child, stderr=child, start_new_session=True
    )
    os.close(child)
    yield Terminal(process, main, bytearray())
    process.kill()
    process.wait()
    os.close(main)


@pytest.fixture
def recorded(root: Path) -> Path:
    return add_example(root)


@pytest.mark.slow
@pytest.mark.usefixtures("recorded")
def test_plain_qrprof_on_a_terminal_opens_the_last_run_and_the_editor(root: Path, terminal: Terminal) -> None:
    terminal.until("linalg_qr")
    terminal.keys("e")
    terminal.until("opened")
    terminal.until("bmm")  # the app is back
    assert (root / "edited").read_text() == "+68 block_soap.py\n"
    terminal.keys("q")
    assert terminal.code() == 0
    assert json.loads((root / "cache" / "tui.json").read_text())["key"] == "aten::linalg_qr"


@pytest.mark.slow
def test_a_first_run_is_traced_from_the_start_screen_and_opened(root: Path, terminal: Terminal) -> None:
    (root / "train.py").write_text(TRAINING)
    terminal.until("There is no run here yet.")
    terminal.keys("\r")
    terminal.until("and its arguments")
    terminal.keys("train.py\r")
    terminal.until("$ qrprof trace train.py")
    terminal.until("press enter to go back", 120)
    terminal.keys("\r")
    terminal.until("ms/step")
    terminal.keys("q")
    assert terminal.code() == 0
