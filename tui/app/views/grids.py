"""What views of tables have in common: the keys move, sort and filter the grid that the person is in."""

from collections.abc import Sequence

from textual import on
from textual.content import Content
from textual.widgets import Static

from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.views import Loaded, Shown, View
from qrprof.tui.app.widgets.grid import Grid


class GridView(View[Loaded]):
    """A view of one grid or of several; the first is the one that the filter and the selection are for."""

    DEFAULT_CSS = """
    GridView .says { height: auto; max-height: 40%; padding: 0 1; }
    """

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self.glyphs = glyphs

    @property
    def first(self) -> Grid:
        return self.query(Grid).first()

    @property
    def grid(self) -> Grid:
        """Where the person is."""
        return next((grid for grid in self.query(Grid) if grid.has_focus), self.first)

    def say(self, where: str, pairs: Sequence[tuple[str, str]]) -> None:
        """Show labels with their sentences, a line each."""
        lines: list[str | tuple[str, str]] = []
        for label, text in pairs:
            lines += [(f"{label:<9} ", "dim"), self.glyphs.text(text), "\n"]
        said = self.query_one(where, Static)
        said.display = bool(pairs)
        said.update(Content.assemble(*lines[:-1]))

    @on(Grid.Filled)
    def filled(self) -> None:
        self.post_message(self.Changed())

    def table(self) -> Shown:
        return Shown(*self.grid.table())

    def row(self) -> Sequence[str] | None:
        rows, place = self.table().rows, self.grid.cursor_row
        return rows[place] if 0 <= place < len(rows) else None

    def status(self) -> str:
        return self.grid.name_cut() or ""

    def filter(self, text: str) -> None:
        self.first.keep(text)

    def hits(self) -> tuple[int, int] | None:
        return self.first.kept, len(self.first.lines)

    def action_down(self) -> None:
        self.grid.action_cursor_down()

    def action_up(self) -> None:
        self.grid.action_cursor_up()

    def action_first(self) -> None:
        self.grid.move_cursor(row=0, animate=False)

    def action_last(self) -> None:
        self.grid.move_cursor(row=self.grid.row_count - 1, animate=False)

    def action_more(self) -> None:
        """What enter does where the grid itself has the keys."""
        self.grid.action_select_cursor()

    def action_next(self) -> None:
        self.first.step(1)

    def action_previous(self) -> None:
        self.first.step(-1)

    def action_sort(self) -> None:
        self.grid.sort_next()

    def action_reverse(self) -> None:
        self.grid.turn()
