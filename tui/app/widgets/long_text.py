"""A long text of which each line is told from the next, however narrow the screen is."""

from collections.abc import Iterator, Sequence

from textual.content import Content
from textual.widgets import Static

from qrprof.tui.app.glyphs import Glyphs


class LongText(Static):
    """Wraps its lines by itself: where one goes on below, a sign stands before the rest."""

    DEFAULT_CSS = "LongText { height: auto; }"

    def __init__(self, glyphs: Glyphs, classes: str | None = None) -> None:
        super().__init__("", classes=classes, markup=False)
        self.sign = f"{glyphs.goes_on} "
        self.lines: Sequence[Content] = ()
        self.folded_to = 0  # cells

    def put(self, lines: Sequence[Content]) -> None:
        self.lines = lines
        self.fold()

    def on_resize(self) -> None:
        if self.size.width != self.folded_to:
            self.fold()

    def fold(self) -> None:
        self.folded_to = self.size.width
        self.update(Content("\n").join(part for line in self.lines for part in folded(line, self.folded_to, self.sign)))


def folded(line: Content, width: int, sign: str) -> Iterator[Content]:
    """The parts of a line, at most `width` cells each; of width 0, as before it is shown, there is one."""
    if not len(sign) < width < line.cell_length:
        yield line
        return
    first, *rest = line.wrap(width - len(sign))
    yield first
    yield from (Content.assemble((sign, "dim"), part) for part in rest)
