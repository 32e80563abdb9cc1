"""Drawing by lines: a widget that makes a line when it is asked for, and cells of text, blocks and marks."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from qrprof.tui.app.timeline_model import Floats, Mask
from qrprof.tui.output import clean

RAMP: Final = " ▁▂▃▄▅▆▇█"
ASCII_RAMP: Final = " .:-=+*%#"
PLAIN: Final = Style()


class Canvas(Widget):
    """Its lines are made one by one, those that are shown alone."""

    def line(self, y: int) -> Iterable[Segment]:
        """What is on line `y`; the rest of the line is blank."""
        raise NotImplementedError

    def render_line(self, y: int) -> Strip:
        style = self.visual_style.rich_style
        return Strip(self.line(y)).apply_style(style).adjust_cell_length(self.size.width, style)


def levels(share: Floats, there: Mask, ascii_only: bool) -> list[str]:
    """A glyph a column: its share of 0..1 in eighths; where there is something at all, it shows."""
    ramp = ASCII_RAMP if ascii_only else RAMP
    eighths = np.maximum(np.clip(np.rint(8 * share), 0, 8).astype(int), there.astype(int))
    return [ramp[eighth] for eighth in eighths.tolist()]


def segments(cells: Sequence[str], styles: Sequence[Style]) -> list[Segment]:
    """Cells with a style each, those that follow each other in the same style as one."""
    places = groupby(range(len(cells)), key=lambda place: styles[place])
    return [Segment("".join(cells[place] for place in own), style) for style, own in places]


def fitted(text: str, width: int) -> str:
    """`text` in exactly `width` cells."""
    return set_cell_size(clean(text), max(width, 0))


def overlay(cells: list[str], at: int, text: str, width: int) -> None:
    """Write `text` over at most `width` of the cells from `at` on."""
    text = clean(text)
    if cell_len(text) != len(text):  # a wide glyph would take the place of two
        text = "".join(char if cell_len(char) == 1 else "?" for char in text)
    for place, char in enumerate(text[:width], start=at):
        cells[place] = char
