"""What is drawn with: block glyphs, or plain ASCII where a terminal or a person wants no more."""

from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from qrprof.profiler.units import MISSING
from qrprof.tui.output import EIGHTHS, clean


@dataclass(frozen=True)
class Glyphs:
    ascii: bool = False

    def text(self, text: str) -> str:
        """`text` on one line, without what a terminal would act upon."""
        return clean(text.replace(MISSING, "-") if self.ascii else text)

    def middle(self, text: str, width: int) -> str:
        """The same in at most `width` cells, both ends kept."""
        text = self.text(text)
        if cell_len(text) <= width:
            return text
        mark = ".." if self.ascii else "…"
        head = max(width - len(mark) + 1, 0) // 2
        tail = max(width - len(mark) - head, 0)
        return set_cell_size(text, head) + mark[:width] + set_cell_size(text[::-1], tail)[::-1]

    def bar(self, share: float | None, cells: int) -> str:
        """A share of 0..1; what is there at all shows at least one mark."""
        if share is None or not share > 0:
            return ""
        length = min(share, 1.0) * cells
        if self.ascii:
            return "#" * round(length) or "."
        eighths = max(round(8 * length), 1)
        return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()

    def order(self, descending: bool) -> str:
        """Beside the header of the column that rows are sorted by."""
        return ("v" if descending else "^") if self.ascii else ("▼" if descending else "▲")
