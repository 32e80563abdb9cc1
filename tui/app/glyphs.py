"""What is drawn with: block glyphs, or plain ASCII where a terminal or a person wants no more."""

from dataclasses import dataclass

from qrprof.profiler.units import MISSING
from qrprof.tui.output import clean, cut, drawn_bar


@dataclass(frozen=True)
class Glyphs:
    ascii: bool = False

    def text(self, text: str) -> str:
        """`text` on one line, without what a terminal would act upon."""
        return clean(text.replace(MISSING, "-") if self.ascii else text)

    def middle(self, text: str, width: int) -> str:
        """The same in at most `width` cells, both ends kept."""
        return cut(self.text(text), width, blocks=not self.ascii)

    def bar(self, share: float | None, cells: int) -> str:
        """A share of 0..1; what is there at all shows at least one mark."""
        return drawn_bar(share, cells, blocks=not self.ascii)

    @property
    def goes_on(self) -> str:
        """Before what is left of a line that was too long."""
        return ">" if self.ascii else "↪"

    def order(self, descending: bool) -> str:
        """Beside the header of the column that rows are sorted by."""
        return ("v" if descending else "^") if self.ascii else ("▼" if descending else "▲")
