"""The timeline view driven in the real app, and what stands in its lines."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from tui_runs import Driver, app_on, play

from qrprof.profiler.facts import find_facts
from qrprof.profiler.gaps import Gap, find_idle
from qrprof.profiler.load import load_run
from qrprof.tui.app.widgets.lanes import Lanes

Script = Callable[[Driver], Awaitable[None]]
LOADER: Final = "loader_bound"  # 633 gaps of five causes on one stream
STREAMS: Final = "two_streams_overlap"  # three streams
WHOLE_MS: Final = "70.5 ms shown"


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


def label_of(driver: Driver, lane: int) -> str:
    timeline = lanes(driver).timeline
    assert timeline
    return timeline.lanes[lane].label
