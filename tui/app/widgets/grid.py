"""A table of which all cells are known: sorted, filtered and cut to its width, with one row for what is left out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.cells import cell_len
from rich.text import Text
from textual.coordinate import Coordinate
from textual.events import Resize
from textual.message import Message
from textual.widgets import DataTable

from qrprof.profiler import units
from qrprof.tui.app.filters import Match, parse
from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.widgets.bars import Part, stacked

FEW: Final = 40  # rows until "others" is opened
MOST: Final = 500  # rows of a table
OTHERS: Final = "\0others"  # the key of that row
NARROWEST: Final = 24  # cells of a name, as long as other columns can go
APART: Final = 1  # cells after a column

BAR: Final = 12  # cells of a bar at least
LONGEST_BAR: Final = 40

Value = str | float | None  # None: not known, and sorted last
Cell = str | tuple[Part, ...]  # a bar takes the room that is left


@dataclass(frozen=True)
class Head:
    """A column. The first one of a grid holds names, which are cut."""

    id: str
    text: str
    spare: int = 0  # without room, those with the highest number go first, of equal ones the last; 0 stays
    sorts: bool = True
    adds: bool = False  # the row of the others shows its sum
    form: Callable[[float], str] = units.digits  # of that sum
    bar: bool = False


@dataclass(frozen=True, eq=False)
class Line:
    """A row: what its cells say, and what they are sorted, filtered and added up by."""

    key: str
    cells: tuple[Cell, ...]
    values: tuple[Value, ...]
    fields: Mapping[str, Value] = field(default_factory=dict)  # what else a filter may ask for
    adds: bool = True  # its values are not part of other rows'


class Grid(DataTable[Text]):
    """The cursor stays on its row, whatever else changes. Enter on the row of the others opens it."""

    DEFAULT_CSS = "Grid { width: 1fr; height: 1fr; scrollbar-size-horizontal: 0; }"

    class Moved(Message):
        """A person has gone to another row."""

        def __init__(self, grid: "Grid", key: str) -> None:
            super().__init__()
            self.grid, self.key = grid, key

        @property
        def control(self) -> "Grid":
            return self.grid

    class Filled(Message):
        """Its rows were drawn anew."""

    def __init__(self, glyphs: Glyphs, name: str, by: str | None = None) -> None:
        super().__init__(cursor_type="row", cell_padding=0, classes=name)
        self.glyphs = glyphs
        self.heads: tuple[Head, ...] = ()
        self.lines: tuple[Line, ...] = ()
        self.shown: list[Line] = []
        self.others: list[Line] = []  # that the filter keeps too, in one row
        self.by = by  # the column that it is sorted by; None: as given
        self.descending = True
        self.match: Match = parse("")
        self.kept = 0  # lines that the filter keeps
        self.most = FEW
        self.wanted: str | None = None  # the row that the person chose last, even where the filter hides it
        self.selected: str | None = None  # the row that the cursor is on
        self.drawing: tuple[object, ...] = ()  # what was drawn last, but for the cells
        self.cells: list[list[Text]] = []

    def put(self, heads: Sequence[Head], lines: Sequence[Line]) -> None:
        """Show these; a sort that they do not have is dropped."""
        self.heads, self.lines = tuple(heads), tuple(lines)
        if self.by not in [head.id for head in heads]:
            self.by = None
        self.fill()

    def keep(self, filter_text: str) -> None:
        self.match = parse(filter_text)
        self.fill()

    def go_to(self, key: str) -> None:
        """Move the cursor to a row, where it is shown."""
        if key != self.selected:
            self.wanted = key
            self.fill()

    def on_resize(self, event: Resize) -> None:
        self.call_after_refresh(self.fill)

    # --- drawing

    def fill(self) -> None:
        kept = [line for line in self.lines if self.match(record(self.heads, line))]
        rows = self.in_order(kept)
        self.kept, self.shown, self.others = len(kept), rows[: self.most], rows[self.most :]
        shown = self.drawn_lines()
        bar = self.styles.scrollbar_size_vertical * (len(shown) >= self.size.height)
        texts = [[self.header(head) for head in self.heads], *map(self.texts, shown)]
        widths = fitting(self.heads, texts, self.size.width - bar)
        top, keys = self.scroll_y, [line.key for line in shown]
        with self.prevent(DataTable.RowHighlighted):
            self.draw(keys, [self.drawn(line, widths) for line in shown], widths)
            place = keys.index(self.wanted) if self.wanted in keys else 0
            self.move_cursor(row=place, animate=False, scroll=False)
        self.selected = keys[place] if keys else None
        self.scroll_to(y=top, animate=False)
        self.call_after_refresh(lambda: self.move_cursor(row=self.cursor_row, animate=False))
        self.post_message(self.Filled())

    def draw(self, keys: Sequence[str], cells: list[list[Text]], widths: Mapping[str, int]) -> None:
        """Only what is another than before: a new table is laid out as a whole."""
        heads = [(self.header(head), head.id, widths[head.id]) for head in self.heads if head.id in widths]
        drawing = (tuple(keys), tuple(heads))
        if drawing == self.drawing:
            for row, (old, new) in enumerate(zip(self.cells, cells, strict=True)):
                for column, (one, other) in enumerate(zip(old, new, strict=True)):
                    if one != other:
                        self.update_cell_at(Coordinate(row, column), other)
        else:
            self.clear(columns=True)
            for text, name, width in heads:
                text = text if name == self.heads[0].id else padded(text, width)
                self.add_column(Text(text), key=name, width=width + APART)
            for key, row_cells in zip(keys, cells, strict=True):
                self.add_row(*row_cells, key=key)
        self.drawing, self.cells = drawing, cells

    def drawn_lines(self) -> list[Line]:
        return [*self.shown, *([added_up(self.heads, self.others)] if self.others else [])]

    def in_order(self, lines: Sequence[Line]) -> list[Line]:
        """By the column of the sort, those without a value last; ties by key."""
        place = next((place for place, head in enumerate(self.heads) if head.id == self.by), None)
        if place is None:
            return list(lines)
        by_key = sorted(lines, key=lambda line: line.key)
        valued = [line for line in by_key if line.values[place] is not None]
        none = [line for line in by_key if line.values[place] is None]
        return [*sorted(valued, key=lambda line: line.values[place] or 0, reverse=self.descending), *none]

    def header(self, head: Head) -> str:
        return head.text + (f" {self.glyphs.order(self.descending)}" if head.id == self.by else "")

    def texts(self, line: Line) -> list[str]:
        return [self.glyphs.text(cell) if isinstance(cell, str) else stacked(cell, BAR).plain for cell in line.cells]

    def drawn(self, line: Line, widths: Mapping[str, int]) -> list[Text]:
        found = []
        for head, cell, text in zip(self.heads, line.cells, self.texts(line), strict=True):
            if head is self.heads[0]:
                found.append(Text(self.glyphs.middle(text, widths[head.id]), no_wrap=True))
            elif head.id in widths:
                width = widths[head.id]
                drawn = Text(padded(text, width), no_wrap=True) if isinstance(cell, str) else stacked(cell, width)
                found.append(drawn)
        return found

    def name_cut(self) -> str | None:
        """The name of the cursor's row, where its cell holds only a part of it."""
        line = next((line for line in self.shown if line.key == self.selected), None)
        name = self.texts(line)[0] if line else ""
        return name if self.columns and cell_len(name) >= self.ordered_columns[0].width else None

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Headers and cells, as they are shown."""
        there = [str(key.value) for key in self.columns]
        places = [place for place, head in enumerate(self.heads) if head.id in there]
        rows = [self.texts(line) for line in self.drawn_lines()]
        return [self.heads[place].text or self.heads[place].id for place in places], [
            [row[place] for place in places] for row in rows
        ]

    # --- what a person does

    def on_data_table_row_highlighted(self, message: DataTable.RowHighlighted) -> None:
        key = message.row_key.value if message.row_key else None  # of an empty table it is None
        if key and key not in (OTHERS, self.selected):
            self.wanted = self.selected = key
            self.post_message(self.Moved(self, key))

    def on_data_table_row_selected(self, message: DataTable.RowSelected) -> None:
        if message.row_key.value == OTHERS:
            message.stop()
            self.most = MOST
            self.fill()

    def on_data_table_header_selected(self, message: DataTable.HeaderSelected) -> None:
        self.sort_by(str(message.column_key.value))

    def sort_by(self, wanted: str) -> None:
        """The same column again: the other way round."""
        if any(head.id == wanted and head.sorts for head in self.heads):
            self.descending = not self.descending if wanted == self.by else wanted != self.heads[0].id
            self.by = wanted
            self.fill()

    def sort_next(self) -> None:
        """By the column after that of the sort."""
        there = {str(key.value) for key in self.columns}
        ids = [head.id for head in self.heads if head.sorts and head.id in there]
        if ids:
            self.sort_by(ids[(ids.index(self.by) + 1) % len(ids)] if self.by in ids else ids[0])

    def turn(self) -> None:
        """Sort the other way round."""
        self.descending = not self.descending
        self.fill()

    def step(self, by: int) -> None:
        """To another row that the filter keeps; it wraps."""
        if self.shown:
            self.move_cursor(row=(self.cursor_row + by) % len(self.shown), animate=False)


def record(heads: Sequence[Head], line: Line) -> dict[str, Value]:
    """What a filter may ask for: the name, and each column by its id."""
    values = {head.id: value for head, value in zip(heads, line.values, strict=True)}
    return {**values, **line.fields, "name": line.values[0]}


def added_up(heads: Sequence[Head], lines: Sequence[Line]) -> Line:
    """The row that stands for all these."""
    cells = [f"{len(lines)} others"]
    for place, head in enumerate(heads[1:], start=1):
        values = [value for line in lines if line.adds and isinstance(value := line.values[place], int | float)]
        cells.append(head.form(sum(values)) if head.adds and values else "")
    return Line(OTHERS, tuple(cells), (None,) * len(heads))


def padded(text: str, width: int) -> str:
    """At the right of a column. rich's own way drops the blanks that keep it from the next one."""
    return " " * (width - cell_len(text)) + text


def fitting(heads: Sequence[Head], texts: Sequence[Sequence[str]], width: int) -> dict[str, int]:
    """The columns that have room in `width`, and how wide they are; the name takes what is left."""
    wide = {head.id: max(cell_len(row[place]) for row in texts) for place, head in enumerate(heads)}
    name = heads[0].id if heads else ""
    longest = wide.pop(name, 0)
    for _, head in sorted(enumerate(heads), key=lambda placed: (placed[1].spare, placed[0]), reverse=True):
        if sum(wide.values()) + APART * (len(wide) + 1) + min(longest, NARROWEST) <= width:
            break
        if head.spare:
            wide.pop(head.id, None)
    left = width - sum(wide.values()) - APART * (len(wide) + 1)
    more = max(min(left - longest, LONGEST_BAR - BAR), 0)
    wide |= {head.id: BAR + more for head in heads if head.bar and head.id in wide}
    return {name: max(min(longest, left), 1), **wide} if heads else {}
