"""Where the step goes and what it would gain: the ranking, with what-ifs and another run beside it."""

from typing import TYPE_CHECKING, Final

from rich.console import Group
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.timer import Timer
from textual.widgets import DataTable, Static

from qrprof.profiler import units
from qrprof.tui.app.actions import BOTTLENECKS
from qrprof.tui.app.aside import aside
from qrprof.tui.app.bottleneck_lines import GAIN, MS, heads, line, number
from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.session import Selection, Session
from qrprof.tui.app.views import Selected
from qrprof.tui.app.views.grids import GridView
from qrprof.tui.app.views.whatif import Answer, answer
from qrprof.tui.app.widgets.grid import Grid
from qrprof.tui.output import field

if TYPE_CHECKING:
    from qrprof.tui.app.bottleneck_rows import Ranked, Row

PAUSE_S: Final = 0.1  # in typing, before a what-if is asked


class Bottlenecks(GridView["Ranked"]):
    VIEW = BOTTLENECKS

    class Told(Message):
        """The answer to a what-if."""

        def __init__(self, told: Answer) -> None:
            super().__init__()
            self.told = told

    def __init__(self, glyphs: Glyphs, sort: str = "") -> None:
        super().__init__(glyphs)
        self.table_of_rows = Grid(glyphs, "bottlenecks", by=sort.removeprefix("-") or GAIN)
        self.table_of_rows.descending = not sort.startswith("-")
        self.found: Ranked | None = None
        self.at: str | None = None  # the row that is told of
        self.what_if = ""
        self.told = Answer("")
        self.pause: Timer | None = None

    def content(self) -> ComposeResult:
        with Horizontal():
            yield self.table_of_rows
            with VerticalScroll(classes="details"):
                yield Static("", classes="text")
        yield Static("", classes="total", markup=False)
        yield Static("", classes="advice", markup=False)

    @property
    def first(self) -> Grid:
        return self.table_of_rows  # also once the screen is gone

    @property
    def sort(self) -> str:
        """The column that rows are sorted by, with "-" before it the other way round."""
        return ("" if self.first.descending else "-") + (self.first.by or GAIN)

    # --- a run

    def load(self, session: Session, other: Session | None) -> "Ranked":
        from qrprof.tui.app.bottleneck_rows import ranked

        return ranked(session, other)

    def show(self, loaded: "Ranked") -> None:
        self.found = loaded
        self.first.wanted = self.selection.key or self.first.wanted
        self.put()
        if self.what_if:
            self.ask(self.what_if)

    def put(self) -> None:
        """Give the rows to the grid."""
        if self.found is None:
            return
        columns = heads(what_if=bool(self.what_if), compared=self.found.delta_ns is not None)
        if self.first.by not in [head.id for head in columns if head.sorts]:
            self.first.by, self.first.descending = GAIN, True
        self.first.put(columns, [line(row, columns, self.told.then_ns, self.glyphs) for row in self.found.rows])

    def select(self, selection: Selection) -> None:
        if selection.key:
            self.first.go_to(selection.key)

    @on(Grid.Moved)
    @on(Grid.Filled)
    def tell(self) -> None:
        """Sums, advice and details, of the row that the cursor is on."""
        found, row = self.found, self.row_selected()
        if found is None:
            return
        self.query_one(".total", Static).update(self.glyphs.text(self.total(found)))
        self.query_one(".advice", Static).update(self.glyphs.text(f"{row.label}: {row.advice}") if row else "")
        self.query_one(".text", Static).update(self.details(found, row) if row else Group())
        if row and row.key != self.at:
            self.at = row.key
            self.post_message(Selected(Selection(row.key)))
        self.post_message(self.Changed())

    def total(self, found: "Ranked") -> str:
        text = f"total {number(found.total_ns / MS)} ms/step, {units.share(found.total_share)}"
        if self.told.then_ns:
            text += f", then {number(sum(self.told.then_ns.values()) / MS)} by shares alone"
        return text if found.delta_ns is None else f"{text}, B - A {units.signed(found.delta_ns / MS)}"

    def details(self, found: "Ranked", row: "Row") -> Group:
        pairs = [("", row.key), *row.details]
        if row.delta_ns is not None:
            pairs.append(("B - A", f"{units.time(row.a_ns)} in A; {row.change or 'the noise is unknown'}"))
        pairs += [("" if place else "made of", part) for place, part in enumerate(row.parts)]
        pairs += [("noise", found.noise), *(("note", note) for note in found.notes)]
        return Group(*(field(label, self.glyphs.text(text)) for label, text in pairs))

    def row_selected(self) -> "Row | None":
        rows = self.found.rows if self.found else ()
        return next((row for row in rows if row.key == self.first.selected), None)

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

    # --- details in the table's place

    @on(DataTable.RowSelected)
    def enter(self) -> None:
        self.set_class(not self.screen.has_class("-wide"), "-opened")
        self.query_one(".details").focus()
        self.post_message(self.Changed())

    def covered(self) -> bool:
        return self.has_class("-opened")

    def close(self) -> bool:
        """Close the details, or leave those beside the table; else drop the what-if."""
        if self.has_class("-opened") or self.query_one(".details").has_focus:
            self.remove_class("-opened")
            self.first.focus()
            self.post_message(self.Changed())
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
        self.put()

    def ask(self, text: str) -> None:
        if self.session and text:
            self.run_worker(self.answer_to(self.session, text), group="what-if", exclusive=True, exit_on_error=False)

    async def answer_to(self, session: Session, text: str) -> None:
        self.post_message(self.Told(await aside(lambda: answer(session, text))))

    def on_bottlenecks_told(self, message: Told) -> None:
        if message.told.text == self.what_if:
            self.told = message.told
            self.put()
