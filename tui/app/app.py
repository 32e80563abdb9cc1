"""The app: the views of a run, one selection for all of them, and the keys of the table of actions."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from textual import on, work
from textual.app import ComposeResult, SuspendNotSupported
from textual.dom import DOMNode
from textual.events import Resize
from textual.message import Message
from textual.widgets import ContentSwitcher, Static

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.store import find_run
from qrprof.tui.app import chrome
from qrprof.tui.app.actions import ACTIONS, RUN_VIEWS, START, Action, State
from qrprof.tui.app.aside import aside
from qrprof.tui.app.bar import Bar, Question
from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.optimizing import Optimizing
from qrprof.tui.app.outside import command_of, run_suspended
from qrprof.tui.app.session import NOTHING, Selection, Session
from qrprof.tui.app.state import Kept
from qrprof.tui.app.views import Selected, View
from qrprof.tui.app.views.bottlenecks import Bottlenecks
from qrprof.tui.app.views.compare import RunChooser, runs_beside
from qrprof.tui.app.views.launches import LaunchesView
from qrprof.tui.app.views.optimizer import OptimizerView
from qrprof.tui.app.views.panels import PanelsView
from qrprof.tui.app.views.start import EXAMPLE, Start
from qrprof.tui.app.views.suggestions import CHANGES, SuggestionsView
from qrprof.tui.app.views.timeline import TimelineView

SMALLEST: Final = (60, 16)  # columns and lines
BACK: Final = "esc: back to the table"


class QrprofApp(Optimizing):
    """Shows a run of the working folder `root`, or the start screen where `session` is None."""

    TITLE = "qrprof"
    CSS_PATH = "app.tcss"
    HORIZONTAL_BREAKPOINTS: ClassVar[list[tuple[int, str]] | None] = [(0, "-narrow"), (80, "-normal"), (120, "-wide")]  # type: ignore[misc]  # Textual says it is one of an instance

    class Reread(Message):
        """A run was read: its session, or why it cannot be."""

        def __init__(self, session: Session, problem: str | None) -> None:
            super().__init__()
            self.session, self.problem = session, problem

    def __init__(
        self,
        session: Session | None,
        root: Path,
        *,
        actions: Sequence[Action] = ACTIONS,
        glyphs: Glyphs | None = None,
        kept: Kept | None = None,
    ) -> None:
        kept = kept or Kept()
        self.shown = START
        super().__init__(actions, glyphs or Glyphs(), kept.theme)
        self.session, self.root = session, root
        self.other: Session | None = None
        self.others: Sequence[Path] = ()  # runs to compare with
        self.selection = Selection(kept.key) if kept.key else NOTHING
        self.filter_text = kept.filter
        self.first_view = kept.view if kept.view in RUN_VIEWS else RUN_VIEWS[0]
        self.bottlenecks = Bottlenecks(self.glyphs, kept.sort)
        self.optimizer = OptimizerView(self.glyphs, root)
        self.suggestions = SuggestionsView(self.glyphs, root)
        further = (TimelineView(self.glyphs), LaunchesView(self.glyphs), PanelsView(self.glyphs))
        views: tuple[View[Any], ...] = (self.bottlenecks, *further, self.optimizer, self.suggestions)
        self.panes = {view.VIEW: view for view in views}

    def kept(self) -> Kept:
        """What is to survive a restart."""
        return Kept(
            view=self.shown if self.shown in RUN_VIEWS else "",
            key=self.selection.key or "",
            sort=self.bottlenecks.sort,
            filter=self.filter_text,
            theme=self.theme,
        )

    # --- the screen

    def compose(self) -> ComposeResult:
        yield Static("", id="header", markup=False)
        yield Static("", id="tabs", markup=False)
        with ContentSwitcher(id="views", initial=START):
            yield Start()
            yield from self.panes.values()
        yield Static("", id="status", markup=False)
        yield Bar()
        yield Static("", id="keys", markup=False)
        yield Static("", id="small", markup=False)

    def on_mount(self) -> None:
        if self.session:
            self.open_session(self.session)
        else:
            self.refresh_lines()

    @on(Resize)
    def fit(self, event: Resize) -> None:
        small = event.size.width < SMALLEST[0] or event.size.height < SMALLEST[1]
        self.screen_stack[0].set_class(small, "-small")
        have, need = (f"{width} x {height}" for width, height in (event.size, SMALLEST))
        self.screen_stack[0].query_one("#small", Static).update(f"The terminal is {have}; qrprof needs {need}. q: quit")
        self.refresh_lines()

    @property
    def small(self) -> bool:
        return self.screen_stack[0].has_class("-small")

    @property
    def view(self) -> View[Any] | None:
        return self.panes.get(self.shown)

    def refresh_lines(self) -> None:
        """Header, tabs, status and keys, of what is shown now."""
        screen, width = self.screen_stack[0], self.size.width - 2
        lines = {part: screen.query_one(f"#{part}", Static) for part in ("header", "tabs", "status", "keys")}
        title = f"run {self.session.title()}" if self.session else f"qrprof in {self.root}"
        lines["header"].update(self.glyphs.middle(title, width))
        lines["tabs"].update(chrome.tabs((one for one in self.possible() if one.id in RUN_VIEWS), self.shown, width))
        status = self.status_line()
        lines["status"].update(self.glyphs.middle(status, width))
        lines["status"].set_class(bool(status), "-said")
        lines["keys"].update(chrome.keys(self.possible(), self.state(), width))

    def status_line(self) -> str:
        view = self.view
        if view is None:
            return ""
        hits = view.hits() if self.filter_text else None
        found = [f"filter {self.filter_text}: {hits[0]} of {hits[1]}"] if hits else []
        back = [BACK] if view.covered() else []
        return "; ".join([*found, *back, *filter(None, [view.status()])])

    # --- views

    def open_session(self, session: Session) -> None:
        self.session = session
        self.others = runs_beside(self.root, session.folder)
        self.open_view(self.shown if self.shown in self.panes else self.first_view)

    def open_view(self, name: str) -> None:
        if self.session is None or name not in self.panes:
            return
        view = self.panes[name]
        self.shown = name
        self.screen_stack[0].query_one("#views", ContentSwitcher).current = name
        view.open(self.session, self.other, self.selection)
        if view.ready:
            self.hand_over(view)
        self.refresh_lines()

    def hand_over(self, view: View[Any]) -> None:
        """Give a view what holds for all of them."""
        view.filter(self.filter_text)
        view.select(self.selection)
        self.focus_view()

    def focus_view(self) -> None:
        """Give the view the keys, if nothing is being typed: a view may take its time, and end in the midst of that."""
        if self.view and self.screen_stack[0].query_one(Bar).question is None:
            self.view.focus_content()

    @on(View.Drawn)
    def drawn(self, message: View.Drawn) -> None:
        if message.view is self.view and self.screen is self.screen_stack[0]:
            self.hand_over(message.view)

    @on(View.Refused)
    def refused(self, message: View.Refused) -> None:
        """A run that cannot be compared with is no longer asked for."""
        self.other = None
        self.say(message.problem, problem=True)

    @on(View.Said)
    def said(self, message: View.Said) -> None:
        self.say(message.text, problem=message.problem)

    @on(View.Changed)
    def changed(self) -> None:
        self.refresh_lines()

    def on_selected(self, message: Selected) -> None:
        self.selection = message.selection
        self.refresh_lines()

    # --- what can be done

    @property
    def here(self) -> Selection:
        """What was selected, or else what the cursor of a view is on that does not have it."""
        key = self.view.cursor_key() if self.view else None
        return self.selection if key in (None, self.selection.key) else Selection(key)

    def state(self) -> State:
        view = self.view
        return State(
            view=self.shown,
            loaded=view is not None and view.ready,
            selection=self.here,
            filter=self.filter_text,
            place=view.place() if view and view.ready else None,
            others=len(self.others),
            process=self.optimizer.process_state(),
            course=self.optimizer.course_state(),
            swap=self.suggestions.swap_state(),
            objection=self.suggestions.objection(),
            judgeable=self.suggestions.judgeable(),
            changes=self.suggestions.opened == CHANGES,
        )

    def doer(self, action: Action) -> DOMNode:
        view = self.view
        return view if view and hasattr(view, f"action_{action.id}") else self

    # --- actions of the app, as the table has them

    def action_bottlenecks(self) -> None:
        self.open_view("bottlenecks")

    def action_timeline(self) -> None:
        self.open_view("timeline")

    def action_launches(self) -> None:
        self.open_view("launches")

    def action_panels(self) -> None:
        self.open_view("panels")

    def action_optimizer(self) -> None:
        self.open_view("optimizer")

    def action_suggestions(self) -> None:
        self.open_view("suggestions")

    def action_find(self) -> None:
        hint = "a part of a name, kind:gap, share>2"
        self.ask(Question("filter", self.filter_text, hint, typed=self.set_filter))

    def action_what_if(self) -> None:
        hint = "linalg_qr=4x launch=0 gap:data=0"
        self.ask(Question("what if", self.bottlenecks.what_if, hint, typed=self.bottlenecks.suppose))

    @on(Bar.Wanted)
    def wanted(self, message: Bar.Wanted) -> None:
        self.ask(message.question)

    @on(Bar.Closed)
    def bar_closed(self) -> None:
        self.focus_view()

    def set_filter(self, text: str) -> None:
        self.filter_text = text
        if self.view and self.view.ready:
            self.view.filter(text)
        self.refresh_lines()

    def action_clear(self) -> None:
        """Close the bar with what was typed in it; else what the view has open; else drop the filter."""
        if not self.query_one(Bar).drop() and not (self.view and self.view.close()):
            self.set_filter("")

    # --- runs

    @on(Start.Chosen)
    async def chosen(self, message: Start.Chosen) -> None:
        await self.do(self.by_id[message.action])

    def action_reload(self) -> None:
        if self.session:
            self.read(Session(self.session.folder, self.session.number))

    def action_open_example(self) -> None:
        self.read(Session(EXAMPLE))

    @work(exclusive=True, exit_on_error=False, group="read")
    async def read(self, session: Session) -> None:
        """Read a run; the one that is open stays where that fails."""
        self.post_message(self.Reread(session, await aside(session.problem)))

    @on(Reread)
    def reread(self, message: Reread) -> None:
        if message.problem:
            self.say(message.problem, problem=True)
        else:
            self.open_session(message.session)

    def action_compare(self) -> None:
        if self.other:
            self.compare_with(None)
        else:
            self.push_screen(RunChooser(self.others), self.compare_with)

    def compare_with(self, folder: Path | None) -> None:
        self.other = Session(folder, self.session.number) if folder and self.session else None
        self.open_view(self.shown)

    def action_trace(self) -> None:
        self.ask(Question("qrprof trace", "", "SCRIPT and its arguments", done=self.trace))

    def trace(self, text: str) -> None:
        """Trace a script on the person's terminal, then open its run."""
        try:
            words = shlex.split(text)
            if not words:
                return
            run_suspended(self, command_of(["trace", *words]), self.root, wait=True)
            self.read(Session(find_run(self.root, None)))
        except SuspendNotSupported:
            self.say(f"the terminal cannot be handed over; type: qrprof trace {text}", problem=True)
        except (QrprofError, OSError, ValueError) as error:
            self.say(f"not traced: {error}", problem=True)
