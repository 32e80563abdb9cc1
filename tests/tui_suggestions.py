"""The suggestions view driven in the real app, and what stands in it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from swap_cases import NOW, SOURCE, TASK, by, verdict_on
from tui_optimizations import add_course
from tui_runs import Driver, app_on, play

from qrprof.planner.gate import evidence, task_store
from qrprof.planner.ledger import opened
from qrprof.planner.swaps import proposals, store
from qrprof.planner.swaps.records import KeptSwap
from qrprof.tui.app.views.agree import Agree
from qrprof.tui.app.views.start import EXAMPLE

OTHER: Final = SOURCE.replace("weights", "w")
Script = Callable[[Driver], Awaitable[None]]


def on_suggestions(
    root: Path, script: Script, size: tuple[int, int] = (80, 24), folder: Path = EXAMPLE, **options: Any
) -> None:
    """Run the script once the view is shown."""

    async def opened_view(driver: Driver) -> None:
        await driver.press("6")
        view = driver.app.suggestions
        await driver.until(lambda: view.ready or bool(view.problem))
        await script(driver)

    play(app_on(folder, root, **options), opened_view, size)


def states(driver: Driver) -> dict[str, str]:
    rows = driver.app.suggestions.first.table()[1]
    place = driver.app.suggestions.first.table()[0].index("state")
    return {row[0]: row[place] for row in rows}


def agreeing(driver: Driver) -> bool:
    return isinstance(driver.app.screen, Agree)


def of_optimization(root: Path, start: str = "def candidate(a, b): ...") -> KeptSwap:
    """A candidate of an optimization that began with another file."""
    scribe = add_course(root, start=start)
    task = task_store.keep(root, TASK)
    verdict = verdict_on(task, SOURCE)
    with opened(root) as connection:
        evidence.keep(connection, evidence.made(verdict, f"{scribe.name}#3", f"{scribe.name}#start", NOW))
        found = proposals.of_file(task, SOURCE, verdict)
        return store.propose(connection, found, SOURCE, by(root).change("verified", "the gate: PASS", verdict.id))
