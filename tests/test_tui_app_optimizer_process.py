"""An optimizer that the terminal UI starts: a real process, on a traced program."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from conftest import Workshop
from textual.widgets import OptionList
from tui_runs import Driver, app_on, calm, play

from qrprof.planner.optimize.journal import journal_of
from qrprof.tui.app.app import QrprofApp
from qrprof.tui.app.runner import Runner
from qrprof.tui.app.views.choice import Choice

pytestmark = pytest.mark.slow
PATIENCE = 3000  # looks: a process imports torch, and an evaluation takes seconds
PROGRAM = """\
import torch
torch.manual_seed(0)
model = torch.nn.Linear(16, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(60):
    optimizer.zero_grad()
    model(torch.randn(512, 16)).softmax(-1).square().mean().backward()
    optimizer.step()
"""
SLOW = """\
TUNABLES = {"PASSES": (6, 5, 4, 3, 2, 1), "CLEAR": (True, False)}
PASSES = 6
CLEAR = True


def candidate(x, dim, half_to_float):
    for _ in range(PASSES):
        weights = (x - x.amax(dim, keepdim=True)).exp_()
        result = weights.div_(weights.sum(dim, keepdim=True))
    return result
"""


@pytest.fixture
def folder(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of a program that was traced, with a file to start from; nothing that runs there is left."""
    workshop.write("train.py", PROGRAM)
    workshop.write("slow.py", SLOW)
    assert workshop.trace("train.py").code == 0
    calm(monkeypatch, workshop.folder)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield workshop.folder
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.cwd() == str(workshop.folder) and process.pid != os.getpid():
                process.kill()


def app_of(folder: Path) -> QrprofApp:
    (run,) = folder.glob(".qrprof/runs/*")
    return app_on(run, folder)


async def started(driver: Driver) -> Runner:
    """Start one as a person does, and wait until it has begun."""
    driver.app.bottlenecks.first.go_to("aten::_softmax")
    await driver.press("/")
    await driver.type("softmax")
    await driver.press("enter")
    await driver.until(lambda: driver.app.bottlenecks.first.selected == "aten::_softmax")
    driver.app.bottlenecks.tell()
    await driver.until(lambda: driver.app.selection.key == "aten::_softmax")
    await driver.press("o")
    await driver.type(" --start slow.py")
    await driver.press("enter")
    await driver.until(lambda: driver.app.optimizer.process_state() == "runs", PATIENCE)
    runner = driver.app.optimizer.runner
    assert runner is not None
    return runner


def test_it_is_started_paused_and_ended_from_the_app(folder: Path) -> None:
    async def script(driver: Driver) -> None:
        runner, view = await started(driver), driver.app.optimizer
        assert driver.app.shown == "optimizer"
        await driver.press("space")
        await driver.until(lambda: bool(view.course and view.course.paused), PATIENCE)
        assert "paused (space: go on)" in driver.screen
        assert view.course is not None
        seen = len(view.course.tried)
        assert seen >= 1
        await driver.press("q")
        await driver.settle()
        assert isinstance(driver.app.screen, Choice)
        await driver.press("enter")  # the first answer: to stay
        await driver.settle()
        assert runner.runs
        await driver.press("space")
        await driver.until(lambda: bool(view.course and len(view.course.tried) > seen), PATIENCE)
        await driver.press("c")
        await driver.until(lambda: not runner.runs and bool(driver.said), PATIENCE)
        await driver.until(lambda: bool(view.course and view.course.ended))
        assert driver.said[-1].startswith("the optimizer has ended: ")
        assert "cancelled by a person" in driver.screen
        await driver.press("R", "enter")
        await driver.until(lambda: view.process_state() == "runs", PATIENCE)
        await driver.press("q")
        await driver.settle()
        await driver.press("down", "down", "enter")
        await driver.until(lambda: driver.app.return_code is not None, PATIENCE)

    app = app_of(folder)
    play(app, script)
    assert app.return_code == 0
    assert app.optimizer.runner is not None
    assert not app.optimizer.runner.runs
    (one,) = journal_of(folder).optimizations()
    assert one.ended is not None
    assert one.ended["end"] == "cancelled"


def test_one_can_leave_and_it_goes_on(folder: Path) -> None:
    runners = []

    async def script(driver: Driver) -> None:
        runners.append(await started(driver))
        await driver.press("q")
        await driver.settle()
        assert isinstance(driver.app.screen, Choice)
        driver.app.screen.query_one(OptionList).highlighted = 1
        await driver.press("enter")
        await driver.until(lambda: driver.app.return_code is not None)

    play(app_of(folder), script)
    (runner,) = runners
    assert runner.runs
    assert psutil.Process(runner.process.pid).is_running()
    os.kill(runner.process.pid, signal.SIGINT)
    assert runner.process.wait(60) == 130
    assert "all is kept" in "".join(runner.lines())
