"""What all views of a run have in common."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Static

from qrprof.profiler import units
from qrprof.profiler.errors import QrprofError
from qrprof.tui.app.aside import aside
from qrprof.tui.app.session import NOTHING, Selection, Session
from qrprof.tui.output import clean, drawn_bar

Loaded = TypeVar("Loaded")  # what a view computes of a run


READ_S: Final = 0.2  # between two looks at how much was read
BAR: Final = 20  # cells

Asked = tuple[Session | None, Session | None]  # a run, and the one to compare it with


class Shown(NamedTuple):
    """What a view shows, for copies and exports; cells as they stand on the screen."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class Selected(Message):
    """A person has selected something in a view: the others follow."""

    def __init__(self, selection: Selection) -> None:
        super().__init__()
        self.selection = selection


class View(Vertical, Generic[Loaded]):
    """One look at a run. `load` computes in a worker thread what `show` draws.

    A view has methods `action_<id>` for the actions that are its own. It posts `Selected` when the person selects, and
    `Changed` when what it shows has changed otherwise (a row was copied to a detail pane, hits of a filter).
    """

    VIEW: ClassVar[str]  # its name in the table of actions, and its id
    DEFAULT_CSS = """
    View > .message { display: none; height: 1fr; padding: 1 2; }
    View.-waiting > .message { display: block; }
    View.-waiting > .content { display: none; }
    """

    class Changed(Message):
        """What the view shows, or what can be done in it, is another."""

    class Drawn(Message):
        """A run that was loaded is shown."""

        def __init__(self, view: "View[Any]") -> None:
            super().__init__()
            self.view = view

    class Refused(Message):
        """What was asked for cannot be shown; the view still has what it had."""

        def __init__(self, problem: str) -> None:
            super().__init__()
            self.problem = problem

    class Said(Message):
        """A sentence for the person."""

        def __init__(self, text: str, *, problem: bool = False) -> None:
            super().__init__()
            self.text, self.problem = text, problem

    class Answered(Message):
        """A worker's result: `loaded`, or why there is none."""

        def __init__(self, asked: "Asked", loaded: object, problem: str | None) -> None:
            super().__init__()
            self.asked, self.loaded, self.problem = asked, loaded, problem

    def __init__(self) -> None:
        super().__init__(id=self.VIEW, classes="-waiting")
        self.asked: Asked = (None, None)  # for what is shown, or being loaded
        self.drawn: Asked = (None, None)  # what is shown
        self.selection = NOTHING  # when it was opened
        self.ready = False
        self.problem: str | None = None  # why there is nothing to show

    @property
    def session(self) -> Session | None:
        """The run that is shown, or being loaded."""
        return self.asked[0]

    # --- what a view is made of

    def content(self) -> ComposeResult:
        """Its widgets."""
        raise NotImplementedError

    def load(self, session: Session, other: Session | None) -> Loaded:
        """Compute, in a worker thread; `other` is the run to compare with. Raises QrprofError."""
        raise NotImplementedError

    def show(self, loaded: Loaded) -> None:
        """Draw it."""
        raise NotImplementedError

    def select(self, selection: Selection) -> None:
        """Go to what was selected elsewhere, where this view has it; posts no message."""

    def table(self) -> Shown:
        """What is shown now."""
        raise NotImplementedError

    def text(self) -> str | None:
        """What is shown instead of a table, such as a source; None: the table is what there is."""
        return None

    def cursor_key(self) -> str | None:
        """The key of the ranking that the cursor is on; None: as selected elsewhere."""
        return None

    def row(self) -> Sequence[str] | None:
        """The cells of the row selected."""
        return None

    def place(self) -> str | None:
        """file:line of what is selected."""
        return None

    def status(self) -> str:
        """What is to be known of it beside the filter, on one line."""
        return ""

    def filter(self, text: str) -> None:
        """Keep or mark what matches."""

    def close(self) -> bool:
        """Close what is open in it, such as details; False where nothing is."""
        return False

    def covered(self) -> bool:
        """Whether what is open in it stands in the place of its table."""
        return False

    def hits(self) -> tuple[int, int] | None:
        """How many match the filter, of how many."""
        return None

    # --- loading

    def compose(self) -> ComposeResult:
        yield Static("", classes="message", markup=False)
        with Vertical(classes="content"):
            yield from self.content()

    def open(self, session: Session, other: Session | None, selection: Selection) -> None:
        """Load a run in a worker, unless it is the one that is shown."""
        self.selection = selection
        if (session, other) == self.asked:
            return
        self.asked = (session, other)
        if not self.ready:
            self.problem = None
            self.wait(reading(session))
        self.run_worker(self.read(session, other), exclusive=True, exit_on_error=False)

    async def read(self, session: Session, other: Session | None) -> None:
        self.post_message(await aside(lambda: self.answer(session, other)))

    def answer(self, session: Session, other: Session | None) -> Answered:
        """In a thread: load, and say how it went."""
        loaded, problem = None, None
        try:
            with session.lock:
                loaded = self.load(session, other)
        except QrprofError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - the thread ends here, and the app goes on
            problem = f"{session.folder} cannot be shown: {type(error).__name__}: {error}"
        return self.Answered((session, other), loaded, problem)

    def on_view_answered(self, message: Answered) -> None:
        if message.asked != self.asked:
            return
        if message.problem is None:
            self.ready, self.problem, self.drawn = True, None, message.asked
            self.remove_class("-waiting")
            self.show(message.loaded)  # type: ignore[arg-type]  # what its own `load` returned
            self.call_after_refresh(self.post_message, self.Drawn(self))  # now it has its size
        elif self.ready:
            self.asked = self.drawn
            self.post_message(self.Refused(message.problem))
        else:
            self.problem = message.problem
            self.wait(clean(message.problem))
        self.post_message(self.Changed())

    def on_mount(self) -> None:
        self.set_interval(READ_S, self.tell_read)

    def tell_read(self) -> None:
        """How much of the trace was read, while there is nothing else to show."""
        if self.display and not self.ready and self.problem is None and self.session:
            self.wait(reading(self.session))

    def focus_content(self) -> None:
        """Give the keys to what the person moves in."""
        for widget in self.query("*"):
            if widget.focusable:
                widget.focus()
                return

    def wait(self, why: str) -> None:
        self.add_class("-waiting")
        self.query_one(".message", Static).update(why)


def reading(session: Session) -> str:
    read = session.read
    if not read.total:
        return f"reading {session.folder.name} ..."
    share = min(read.done / read.total, 1.0)
    bar = drawn_bar(share, BAR, blocks=False)
    return f"reading {session.folder.name} [{bar:<{BAR}}] {units.share(share)} of {units.size(read.total)}"
