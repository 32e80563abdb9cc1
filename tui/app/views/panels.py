"""QR calls taken apart: their shapes, and the block columns of the one selected, phase by phase."""

from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.widgets import Static

from qrprof.tui.app.actions import PANELS
from qrprof.tui.app.session import Selection, Session
from qrprof.tui.app.views import Selected
from qrprof.tui.app.views.grids import GridView
from qrprof.tui.app.widgets.grid import Grid

if TYPE_CHECKING:
    from qrprof.tui.app.panel_rows import Panels


class PanelsView(GridView["Panels"]):
    VIEW = PANELS
    DEFAULT_CSS = """
    PanelsView .shapes { height: auto; max-height: 30%; }
    """
    found: "Panels | None" = None

    def content(self) -> ComposeResult:
        yield Static("", classes="says of-run", markup=False)
        yield Grid(self.glyphs, "shapes", by="ms")
        yield Static("", classes="says of-shape", markup=False)
        yield Grid(self.glyphs, "columns")

    def load(self, session: Session, other: Session | None) -> "Panels":
        from qrprof.tui.app.panel_rows import panels

        return panels(session, other)

    def show(self, loaded: "Panels") -> None:
        self.found = loaded
        self.say(".of-run", loaded.says)
        self.first.display = bool(loaded.lines)
        self.first.put(loaded.heads, loaded.lines)
        self.open_shape()

    def open_shape(self) -> None:
        """The block columns of the shape that the cursor is on."""
        opened = self.found.opened.get(self.first.selected or "") if self.found else None
        columns = self.query_one(".columns", Grid)
        columns.display = opened is not None and bool(opened.lines)
        self.say(".of-shape", opened.says if opened else ())
        columns.put(opened.heads if opened else (), opened.lines if opened else ())

    def filter(self, text: str) -> None:
        super().filter(text)
        self.open_shape()

    def select(self, selection: Selection) -> None:
        """Go to the op's first shape, unless the cursor is on one of its shapes."""
        opened = self.found.opened if self.found else {}
        own = [key for key, shape in opened.items() if shape.op == selection.key]
        if own and self.first.selected not in own:
            self.first.go_to(own[0])
            self.open_shape()

    def cursor_key(self) -> str | None:
        opened = self.found.opened.get(self.first.selected or "") if self.found else None
        return opened.op if opened else None

    @on(Grid.Moved, ".shapes")
    def follow(self, message: Grid.Moved) -> None:
        self.open_shape()
        if self.found is not None:
            self.post_message(Selected(Selection(self.found.opened[message.key].op)))
