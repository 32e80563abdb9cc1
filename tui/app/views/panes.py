"""A view of tables with a pane for one long text beside them, or in their place where there is no room."""

from collections.abc import Iterable, Sequence

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content

from qrprof.tui.app.views import Loaded
from qrprof.tui.app.views.grids import GridView
from qrprof.tui.app.widgets.long_text import LongText


class PaneView(GridView[Loaded]):
    DEFAULT_CSS = """
    PaneView .tables { width: 1fr; height: 1fr; }
    PaneView .pane { display: none; width: 1fr; height: 1fr; padding: 0 1; background: $surface; }
    PaneView.-opened .pane { display: block; }
    PaneView.-opened .tables { display: none; }
    """
    opened: str | None = None  # the name of what the pane shows; None: it is closed
    lines: Sequence[str] = ()

    def content(self) -> ComposeResult:
        with Horizontal():
            with Vertical(classes="tables"):
                yield from self.tables()
            with VerticalScroll(classes="pane"):
                yield LongText(self.glyphs, classes="text")

    def tables(self) -> ComposeResult:
        raise NotImplementedError

    def open_pane(self, name: str, lines: Iterable[str], *, at_end: bool = False) -> None:
        """Show text; where it is another one than before, from its beginning or at its end."""
        if name != self.opened:
            pane = self.query_one(".pane")
            (pane.scroll_end if at_end else pane.scroll_home)(animate=False)
        self.opened, self.lines = name, [self.glyphs.text(line.expandtabs(4)) for line in lines]
        self.query_one(LongText).put(self.styled(self.lines))
        self.add_class("-opened")
        if not self.screen.has_class("-wide"):
            self.query_one(".pane").focus()
        self.post_message(self.Changed())

    def styled(self, lines: Sequence[str]) -> Sequence[Content]:
        """The lines of the pane, with their styles."""
        return [Content(line) for line in lines]

    def close(self) -> bool:
        if self.opened is None:
            return False
        self.opened = None
        self.remove_class("-opened")
        self.focus_content()
        self.post_message(self.Changed())
        return True

    def covered(self) -> bool:
        return self.opened is not None and not self.screen.has_class("-wide")

    def text(self) -> str | None:
        return None if self.opened is None else "".join(f"{line}\n" for line in self.lines)
