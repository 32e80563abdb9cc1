"""Where a column is in time."""

import math
from typing import Final

from qrprof.profiler import units
from qrprof.tui.app.timeline_model import Viewport
from qrprof.tui.app.widgets.canvas import overlay

APART: Final = 16  # columns between ticks, at least: the longest label is `12,345.678901 ms`


def tick_ns(view: Viewport, columns: int) -> int:
    """From one tick to the next: 1, 2 or 5 times a power of ten."""
    least = max(APART * view.ns / max(columns, 1), 1.0)
    power = 10 ** math.floor(math.log10(least))
    return int(next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least))


def ruler(view: Viewport, origin: int, columns: int, ascii_only: bool) -> list[str]:
    """Ticks with their time since `origin`, in cells."""
    cells, step, mark = [" "] * columns, tick_ns(view, columns), "|" if ascii_only else "╷"
    tick = origin + -(-(view.start - origin) // step) * step
    while tick < view.end:
        at = (tick - view.start) * columns // view.ns
        label = units.moment(tick - origin, step)
        overlay(cells, at, mark + (label if len(label) < columns - at else ""), columns - at)
        tick += step
    return cells
