"""The way through the terminal UI from a traced program to a kernel that runs in it, all of it by keys."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from conftest import Workshop
from swap_cases import NOW, by, loaded, now, verdict_on
from tui_runs import Driver, app_on, calm, play

from qrprof.planner.gate import evidence
from qrprof.planner.ledger import opened
from qrprof.planner.optimize.journal import journal_of
from qrprof.planner.swaps import proposals, store
from qrprof.tui.app.views.agree import Agree

pytestmark = [pytest.mark.slow, pytest.mark.alone]
PATIENCE = 6000  # looks: the process imports torch, and an evaluation takes seconds
QR = "aten::linalg_qr"
PROGRAM = """\
import torch
torch.manual_seed(0)
matrices = torch.randn(5000, 4, 4)
model = torch.nn.Linear(16, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(60):
    optimizer.zero_grad()
    torch.linalg.qr(matrices)
    model(torch.randn(16, 16)).square().mean().backward()
    optimizer.step()
"""
INSTALLED = """\
from qrprof import kernels
kernels.install(".qrprof/swaps.json")
"""
REPORT = """\
for swap in kernels.report():
    print(swap.op, swap.key, "served" if swap.hits else swap.fallbacks)
"""


@pytest.fixture
def workplace(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    """With a program that was traced; nothing that runs there is left."""
    workshop.write("train.py", PROGRAM)
    assert workshop.trace("train.py").code == 0
    calm(monkeypatch, workshop.folder)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield workshop
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.cwd() == str(workshop.folder) and process.pid != os.getpid():
                process.kill()


def suggested(root: Path) -> str:
    """What the search tried first, as it stands where the gate passed it: whether it is faster here is chance."""
    journal = journal_of(root)
    (one,) = journal.optimizations()
    first = min(journal.candidates(one.id), key=lambda candidate: candidate.number)
    task, source = journal.start(one.id).task, first.proposal.source
    verdict = verdict_on(task, source)
    with opened(root) as connection:
        evidence.keep(connection, evidence.made(verdict, f"{one.id}#{first.number}", f"{one.id}#start", NOW))
        found = proposals.of_file(task, source, verdict)
        return store.propose(connection, found, source, by(root).change("verified", "the gate: PASS", verdict.id)).name


def test_from_a_run_by_a_search_to_a_kernel_that_is_accepted_and_seen_in_the_next_run(workplace: Workshop) -> None:
    root = workplace.folder
    (before,) = root.glob(".qrprof/runs/*")
    names = []

    async def search(driver: Driver) -> None:
        ranking, optimizer = driver.app.bottlenecks, driver.app.optimizer
        assert ranking.first.selected == QR
        await driver.press("enter")
        await driver.settle()
        assert "[[5000,4,4],[]]" in driver.screen
        await driver.press("escape", "4")
        await driver.until(lambda: "linalg_qr 5000 x 4 x 4 float: 1 call a step" in driver.screen)
        await driver.press("o")
        await driver.until(lambda: driver.app.screen.focused is not None)
        await driver.press("ctrl+u")
        await driver.type("--budget 5min,3evals")
        await driver.press("enter")
        await driver.until(lambda: optimizer.process_state() == "runs", PATIENCE)
        await driver.until(lambda: bool(optimizer.course and optimizer.course.ended), PATIENCE)
        await driver.until(lambda: bool(driver.said), PATIENCE)
        assert driver.said[-1].startswith("the optimizer has ended: ")
        assert driver.column("of") == ["linalg_qr"]
        names.append(suggested(root))

    async def accept(driver: Driver) -> None:
        await driver.press("6")
        view = driver.app.suggestions
        await driver.until(lambda: view.ready)
        view.first.go_to(names[0])
        await driver.settle()
        await driver.press("enter")
        await driver.until(lambda: "verdict   PASS" in driver.screen)
        await driver.press("escape", "a")
        await driver.settle()
        assert isinstance(driver.app.screen, Agree)
        assert "def candidate(" in "\n".join(line.plain for line in driver.app.screen.lines)
        await driver.press("A")
        await driver.until(lambda: f"{names[0]} is accepted" in " ".join(driver.said))

    async def look(driver: Driver) -> None:
        assert driver.app.bottlenecks.first.selected == QR
        await driver.press("c", "enter")
        await driver.until(lambda: "B - A" in driver.screen)
        assert "linalg_qr" in driver.column("what")

    async def path(driver: Driver) -> None:
        await search(driver)
        await accept(driver)

    play(app_on(before, root), path, (120, 40))
    assert now(root, names[0]).state == "accepted"
    assert loaded(root) == names
    workplace.write("swapped.py", INSTALLED + PROGRAM + REPORT)
    ran = workplace.trace("swapped.py", QRPROF_CONFIG=str(root / "config"))
    assert ran.out == "linalg_qr CPU served\n", ran.err
    (after,) = set(root.glob(".qrprof/runs/*")) - {before}
    play(app_on(after, root), look, (120, 40))
