"""Where the step goes and what it would gain: the ranking, with what-ifs and another run beside it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.events import Resize
from textual.message import Message
from textual.timer import Timer
from textual.widgets import DataTable, Static

from qrprof.profiler import units
from qrprof.tui.app.actions import BOTTLENECKS
from qrprof.tui.app.columns import (
    GAP,
    NAME,
    THEN,
    Column,
    Extra,
    columns_of,
    fields,
    fitting,
    in_ms,
    ordered,
    padded,
    signed_ms,
    sums,
)
from qrprof.tui.app.filters import Match, parse
from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.session import Selection, Session
from qrprof.tui.app.views import Selected, Shown, View
from qrprof.tui.app.views.whatif import Answer, answer
from qrprof.tui.output import field

if TYPE_CHECKING:
    from qrprof.tui.app.bottleneck_rows import Ranked, Row

FEW: Final = 40  # rows until "others" is opened
MOST: Final = 500  # rows of a table
OTHERS: Final = "\0others"  # the key of that row
GAIN: Final = "gain"  # the column that rows are sorted by at first
SCROLLBAR: Final = 2  # cells
PAUSE_S: Final = 0.1  # in typing, before a what-if is asked


class Bottlenecks(View["Ranked"]):
    VIEW = BOTTLENECKS
    TITLE = "bottlenecks"

    class Told(Message):
        """The answer to a what-if."""

        def __init__(self, told: Answer) -> None:
            super().__init__()
            self.told = told

    def __init__(self, glyphs: Glyphs, sort: str = "") -> None:
        super().__init__()
        self.glyphs = glyphs
        self.sort, self.descending = sort.removeprefix("-") or GAIN, not sort.startswith("-")
        self.found: Ranked | None = None
        self.shown: list[Row] = []  # in the table, in its order
        self.cells: list[list[str]] = []
        self.columns: tuple[Column, ...] = ()
        self.wanted: str | None = None  # the row that the person chose last, even where the filter hides it
        self.at: str | None = None  # the row that the cursor is on
        self.match: Match = parse("")
        self.kept = 0  # rows that the filter keeps
        self.most = FEW
        self.what_if = ""
        self.told = Answer("")
        self.pause: Timer | None = None

    def content(self) -> ComposeResult:
        with Horizontal():
            grid: DataTable[Text] = DataTable(cursor_type="row", cell_padding=0)
            grid.can_focus = True
            yield grid
            with VerticalScroll(classes="details"):
                yield Static("", classes="text")
        yield Static("", classes="total", markup=False)
        yield Static("", classes="advice", markup=False)

    @property
    def grid(self) -> "DataTable[Text]":
        return self.query_one(DataTable)

    # --- a run

    def load(self, session: Session, other: Session | None) -> "Ranked":
        from qrprof.tui.app.bottleneck_rows import ranked

        return ranked(session, other)

    def show(self, loaded: "Ranked") -> None:
        self.found = loaded
        if self.sort not in [column.id for column in self.all_columns() if column.sort]:
            self.sort, self.descending = GAIN, True
        if self.what_if:
            self.ask(self.what_if)

    def select(self, selection: Selection) -> None:
        if selection.key and selection.key != self.at:
            self.wanted = selection.key
            self.fill()

    def on_resize(self, event: Resize) -> None:
        self.call_after_refresh(self.fill)

    # --- the table

    def all_columns(self) -> tuple[Column, ...]:
        compared = self.found is not None and self.found.delta_ns is not None
        return columns_of(what_if=bool(self.what_if), compared=compared)

    def marked(self, column: Column) -> Column:
        """With the sign of the order in its header, where rows are sorted by it."""
        if column.id != self.sort:
            return column
        return replace(column, header=f"{column.header} {self.glyphs.order(self.descending)}")

    def fill(self) -> None:
        """Draw the rows that the filter keeps; the cursor stays on its row, and the table where it was scrolled to."""
        if self.found is None:
            return
        grid, extra = self.grid, Extra(self.glyphs, self.told.then_ns)
        kept = [row for row in self.found.rows if self.match(fields(row))]
        columns = [self.marked(column) for column in self.all_columns()]
        by = next(column for column in columns if column.id == self.sort)
        rows = ordered(kept, by, extra, descending=self.descending)
        self.kept, self.shown = len(kept), rows[: self.most]
        others = rows[self.most :]
        cells = [[self.glyphs.text(column.cell(row, extra)) for column in columns] for row in self.shown]
        if others:
            cells.append([self.glyphs.text(cell) for cell in sums(columns, others, extra)])
        widths = fitting(columns, cells, grid.outer_size.width - SCROLLBAR)
        self.columns = tuple(column for column in columns if column.id in widths)
        self.cells = [[cell for column, cell in zip(columns, row, strict=True) if column.id in widths] for row in cells]
        before = self.at
        self.draw(widths, [*(row.key for row in self.shown), *([OTHERS] if others else [])])
        self.tell()
        if self.at != before:
            self.post_message(Selected(Selection(self.at)))

    def draw(self, widths: dict[str, int], keys: Sequence[str]) -> None:
        grid, top = self.grid, self.grid.scroll_y
        with self.prevent(DataTable.RowHighlighted):
            grid.clear(columns=True)
            for column in self.columns:
                text = padded(column.header, widths[column.id], right=column.right)
                grid.add_column(Text(text), key=column.id, width=widths[column.id] + GAP)
            for key, row in zip(keys, self.cells, strict=True):
                grid.add_row(*self.drawn(row, widths), key=key)
            place = keys.index(self.wanted) if self.wanted in keys else 0
            grid.move_cursor(row=place, animate=False, scroll=False)
        if keys:
            self.at = keys[place] if keys[place] != OTHERS else self.at
        grid.scroll_to(y=top, animate=False)
        self.call_after_refresh(grid.move_cursor, row=place, animate=False)

    def drawn(self, row: Sequence[str], widths: dict[str, int]) -> list[Text]:
        texts = [
            self.glyphs.middle(cell, widths[NAME]) if column.id == NAME else cell
            for column, cell in zip(self.columns, row, strict=True)
        ]
        return [
            Text(padded(text, widths[column.id], right=column.right))
            for column, text in zip(self.columns, texts, strict=True)
        ]

    # --- what is said beside it

    def tell(self) -> None:
        """Sums, advice and details."""
        found, row = self.found, self.row_selected()
        if found is None:
            return
        total = f"total {in_ms(found.total_ns)} ms/step, {units.share(found.total_share)}"
        if self.told.then_ns:
            total += f", then {in_ms(sum(self.told.then_ns.values()))}"
        if found.delta_ns is not None:
            total += f", B - A {signed_ms(found.delta_ns)}"
        self.query_one(".total", Static).update(self.glyphs.text(total))
        self.query_one(".advice", Static).update(self.glyphs.text(f"{row.label}: {row.advice}") if row else "")
        self.query_one(".details .text", Static).update(self.details(found, row))
        self.post_message(self.Changed())

    def details(self, found: "Ranked", row: "Row | None") -> Group:
        if row is None:
            return Group()
        pairs = [("", row.key), *row.details]
        if row.delta_ns is not None:
            pairs.append(("B - A", f"{units.time(row.a_ns)} in A; {row.change or 'the noise is unknown'}"))
        pairs += [("" if place else "made of", part) for place, part in enumerate(row.parts)]
        pairs += [("noise", found.noise), *(("note", note) for note in found.notes)]
        return Group(*(field(label, self.glyphs.text(text)) for label, text in pairs))

    def row_selected(self) -> "Row | None":
        return next((row for row in self.shown if row.key == self.at), None)

    def table(self) -> Shown:
        return Shown([column.header or column.id for column in self.columns], self.cells)

    def row(self) -> Sequence[str] | None:
        place = self.grid.cursor_row
        return self.cells[place] if 0 <= place < len(self.cells) else None

    def place(self) -> str | None:
        row = self.row_selected()
        return row.place if row else None

    def status(self) -> str:
        said = []
        if self.what_if:
            said.append(self.told.problem or self.told.line or "...")
        if self.found and self.found.compared:
            said.append(self.found.compared)
        return "; ".join(said)

    # --- filter and selection

    def filter(self, text: str) -> None:
        self.match = parse(text)
        self.fill()

    def hits(self) -> tuple[int, int] | None:
        return (self.kept, len(self.found.rows)) if self.found else None

    @on(DataTable.RowHighlighted)
    def follow(self, message: DataTable.RowHighlighted) -> None:
        key = message.row_key.value if message.row_key else None  # of an empty table it is None
        if key and key != OTHERS and key != self.at:
            self.wanted = self.at = key
            self.tell()
            self.post_message(Selected(Selection(key)))

    @on(DataTable.RowSelected)
    def enter(self, message: DataTable.RowSelected) -> None:
        if message.row_key.value == OTHERS:
            self.most = MOST
            self.fill()
        elif not self.screen.has_class("-wide"):
            self.add_class("-opened")
            self.query_one(".details").focus()

    def close(self) -> bool:
        """Close the details; else drop the what-if."""
        if self.has_class("-opened"):
            self.remove_class("-opened")
            self.grid.focus()
            return True
        if self.what_if:
            self.suppose("")
            return True
        return False

    # --- what-ifs

    def suppose(self, text: str) -> None:
        """Ask for a what-if once the typing pauses; "" drops it."""
        self.what_if = text.strip()
        if self.pause:
            self.pause.stop()
        if self.what_if:
            self.pause = self.set_timer(PAUSE_S, lambda: self.ask(self.what_if))
        self.told = Answer(self.what_if)
        if not self.what_if and self.sort == THEN.id:
            self.sort, self.descending = GAIN, True
        self.fill()

    def ask(self, text: str) -> None:
        session = self.session
        if session and text:
            self.run_worker(
                lambda: self.post_message(self.Told(answer(session, text))),
                group="what-if",
                thread=True,
                exclusive=True,
                exit_on_error=False,
            )

    def on_bottlenecks_told(self, message: Told) -> None:
        if message.told.text == self.what_if:
            self.told = message.told
            self.fill()

    # --- moving and sorting

    def action_down(self) -> None:
        self.grid.action_cursor_down()

    def action_up(self) -> None:
        self.grid.action_cursor_up()

    def action_first(self) -> None:
        self.grid.move_cursor(row=0, animate=False)

    def action_last(self) -> None:
        self.grid.move_cursor(row=self.grid.row_count - 1, animate=False)

    def action_next(self) -> None:
        self.step(1)

    def action_previous(self) -> None:
        self.step(-1)

    def step(self, by: int) -> None:
        if self.shown:
            self.grid.move_cursor(row=(self.grid.cursor_row + by) % len(self.shown), animate=False)

    def action_sort(self) -> None:
        ids = [column.id for column in self.columns if column.sort]
        self.sort_by(ids[(ids.index(self.sort) + 1) % len(ids)] if self.sort in ids else GAIN)

    def action_reverse(self) -> None:
        self.descending = not self.descending
        self.fill()

    @on(DataTable.HeaderSelected)
    def header(self, message: DataTable.HeaderSelected) -> None:
        self.sort_by(str(message.column_key.value))

    def sort_by(self, wanted: str) -> None:
        """The same column again: the other way round."""
        if not any(column.sort for column in self.columns if column.id == wanted):
            return
        self.descending = not self.descending if wanted == self.sort else wanted != NAME
        self.sort = wanted
        self.fill()
