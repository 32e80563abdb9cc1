"""What launching costs: by op or by what is launched, and what a CUDA graph would save."""

from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.widgets import Static

from qrprof.tui.app.actions import LAUNCHES
from qrprof.tui.app.session import Selection, Session
from qrprof.tui.app.views import Selected
from qrprof.tui.app.views.grids import GridView
from qrprof.tui.app.widgets.grid import Grid

if TYPE_CHECKING:
    from qrprof.tui.app.launch_rows import Launched

OP, WHAT = "op", "what"  # what the rows are


class LaunchesView(GridView["Launched"]):
    VIEW = LAUNCHES
    found: "Launched | None" = None
    by = OP

    def content(self) -> ComposeResult:
        yield Static("", classes="says", markup=False)
        yield Grid(self.glyphs, "launches", by="api")

    def load(self, session: Session, other: Session | None) -> "Launched":
        from qrprof.tui.app.launch_rows import launched

        return launched(session, other)

    def show(self, loaded: "Launched") -> None:
        self.found = loaded
        self.say(".says", loaded.says)
        self.put()

    def put(self) -> None:
        if self.found is not None:
            self.first.display = bool(self.found.lines[self.by])
            self.first.put(self.found.heads[self.by], self.found.lines[self.by])

    def select(self, selection: Selection) -> None:
        if selection.key and self.by == OP:
            self.first.go_to(selection.key)

    def cursor_key(self) -> str | None:
        return self.first.selected if self.by == OP else None

    @on(Grid.Moved)
    def follow(self, message: Grid.Moved) -> None:
        self.post_message(Selected(Selection(message.key)) if self.by == OP else self.Changed())

    def action_by(self) -> None:
        """The other kind of rows."""
        self.by = WHAT if self.by == OP else OP
        self.put()
