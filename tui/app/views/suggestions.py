"""Faster kernels and changes that a person may accept: what speaks for each, its source, and what was decided."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from textual import on
from textual.app import ComposeResult, SuspendNotSupported
from textual.content import Content
from textual.widgets import DataTable, Static

from qrprof.profiler.errors import QrprofError
from qrprof.tui.app.actions import SUGGESTIONS
from qrprof.tui.app.aside import aside
from qrprof.tui.app.bar import Bar, Question
from qrprof.tui.app.diffs import emphasised
from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.outside import command_of, run_suspended
from qrprof.tui.app.session import NOTHING, Selection, Session
from qrprof.tui.app.views.agree import Agree
from qrprof.tui.app.views.panes import PaneView
from qrprof.tui.app.widgets.grid import Grid

if TYPE_CHECKING:
    from qrprof.tui.app.suggestion_rows import Suggestion, Suggestions

PAGE, CHANGES, NEXT = "page", "changes", "next"  # what the pane shows
CONTEXT: Final = 3  # lines
NONE: Final = "there is none yet: optimizations and `qrprof gate` make some, and so do traced runs that call QR"


class SuggestionsView(PaneView["Suggestions"]):
    VIEW = SUGGESTIONS

    def __init__(self, glyphs: Glyphs, root: Path) -> None:
        super().__init__(glyphs)
        self.root = root
        self.found: Suggestions | None = None
        self.decided: str | None = None  # what the cursor leaves for the next one that is undecided
        self.context = CONTEXT  # lines around what was changed

    def tables(self) -> ComposeResult:
        yield Static("", classes="says", markup=False)
        yield Grid(self.glyphs, "swaps")

    # --- what there is

    def open(self, session: Session, other: Session | None, selection: Selection) -> None:
        """Look again each time: others decide as well."""
        self.asked = (None, None)
        super().open(session, other, selection)

    def look_again(self) -> None:
        if self.session:
            self.open(self.session, None, NOTHING)

    def load(self, session: Session, other: Session | None) -> "Suggestions":
        from qrprof.tui.app.suggestion_rows import suggestions

        return suggestions(self.root, session)

    def show(self, loaded: "Suggestions") -> None:
        from qrprof.tui.app.suggestion_rows import HEADS, UNDECIDED, line

        self.found = loaded
        notes = [("stale", note) for note in loaded.notes]
        self.say(".says", notes if loaded.all else [("swaps", NONE)])
        self.first.display = bool(loaded.all)
        undecided = [one.name for one in loaded.all if one.shown.kept.state in UNDECIDED]
        if self.decided is not None:
            self.first.wanted, self.decided = next(iter(undecided), self.decided), None
        self.first.put(HEADS, [line(one) for one in loaded.all])
        self.put_pane()

    def one(self) -> "Suggestion | None":
        """The one that the cursor is on."""
        return next((one for one in self.found.all if one.name == self.first.selected), None) if self.found else None

    def swap_state(self) -> str:
        one = self.one()
        if one is None:
            return ""
        from qrprof.tui.swap_pages import state

        return state(one.shown)

    def objection(self) -> str:
        one = self.one()
        return one.objection if one else ""

    def judgeable(self) -> bool:
        one = self.one()
        return one is not None and one.judgeable

    def status(self) -> str:
        one = self.one()
        return f"against it: {one.objection}" if one and one.objection else super().status()

    def place(self) -> str | None:
        from qrprof.kernels.swapfile import candidate_file
        from qrprof.planner.swaps.publish import swaps_file

        one = self.one()
        if one is None:
            return None
        patch = one.shown.kept.swap.patch
        path = self.root / patch.path if patch else candidate_file(swaps_file(self.root), one.shown.kept.swap.sha256)
        return f"{path}:1" if path.exists() else None

    # --- one long text

    @on(Grid.Moved)
    def moved(self) -> None:
        self.put_pane()
        self.post_message(self.Changed())

    def put_pane(self) -> None:
        """What the pane shows, of the suggestion that the cursor is on."""
        from qrprof.tui.app.suggestion_rows import page

        one = self.one()
        if one and self.opened == PAGE:
            self.open_pane(PAGE, page(self.root, one))
        elif one and self.opened == CHANGES:
            self.run_worker(self.read_changes(one), group="changes", exclusive=True, exit_on_error=False)

    @on(DataTable.RowSelected)
    def open_page(self) -> None:
        from qrprof.tui.app.suggestion_rows import page

        if one := self.one():
            self.open_pane(PAGE, page(self.root, one))

    def action_changes(self) -> None:
        """From its whole source to what was changed in the file that it was made from, and back."""
        if self.opened == CHANGES:
            self.open_page()
        elif one := self.one():
            self.run_worker(self.read_changes(one), group="changes", exclusive=True, exit_on_error=False)

    async def read_changes(self, one: "Suggestion") -> None:
        from qrprof.tui.app.suggestion_rows import changes

        lines = await aside(lambda: changes(self.root, one, self.context))
        self.open_pane(CHANGES, lines)

    def action_more_context(self) -> None:
        self.show_context(self.context + 1)

    def action_less_context(self) -> None:
        self.show_context(self.context - 1)

    def show_context(self, lines: int) -> None:
        self.context = max(lines, 0)
        self.put_pane()

    def styled(self, lines: Sequence[str]) -> Sequence[Content]:
        one = self.one()
        return emphasised(lines) if self.opened == CHANGES or (one and one.is_patch) else super().styled(lines)

    # --- decisions

    def action_accept(self) -> None:
        if one := self.one():
            self.ask(one, "")

    def action_override(self) -> None:
        one = self.one()
        if one is None:
            return

        def reasoned(text: str) -> None:
            if text.strip():
                self.ask(one, text.strip())

        self.post_message(Bar.Wanted(Question("accept all the same", "", "your reason, which is kept", done=reasoned)))

    def ask(self, one: "Suggestion", override: str) -> None:
        """Show all that will run, and accept just that where the person agrees."""
        from qrprof.tui.app.suggestion_rows import accept, asked

        def agreed(yes: bool | None) -> None:
            if yes:
                self.decide(one, partial(accept, self.root, one, override))

        lines = [self.glyphs.text(line) for line in asked(self.root, one, override)]
        drawn = emphasised(lines) if one.is_patch else [Content(line) for line in lines]
        self.app.clear_notifications()  # which would lie over it
        self.app.push_screen(Agree(f"Accept {one.name}?", drawn, self.glyphs), agreed)

    def action_reject(self) -> None:
        from qrprof.tui.app.suggestion_rows import reject

        self.ask_why("reject", reject)

    def action_undo(self) -> None:
        from qrprof.tui.app.suggestion_rows import undo

        self.ask_why("undo", undo)

    def ask_why(self, what: str, how: Callable[[Path, "Suggestion", str], Sequence[str]]) -> None:
        """Ask for a reason, and do it once enter is pressed, be there one or not."""
        one = self.one()
        if one is None:
            return
        question = Question(
            f"{what} {one.name}",
            "",
            "enter, or why; esc: change nothing",
            done=lambda text: self.decide(one, partial(how, self.root, one, text)),
        )
        self.post_message(Bar.Wanted(question))

    def decide(self, one: "Suggestion", work: Callable[[], Sequence[str]]) -> None:
        self.run_worker(self.decided_on(one, work), group="decide", exit_on_error=False)

    async def decided_on(self, one: "Suggestion", work: Callable[[], Sequence[str]]) -> None:
        try:
            done, *left = await aside(work)
            self.post_message(self.Said(done))
            self.decided = one.name
            if left:
                self.open_pane(NEXT, [done, "", *left])
        except QrprofError as error:
            self.post_message(self.Said(str(error), problem=True))
        self.look_again()

    def action_judge(self) -> None:
        """`qrprof swaps accept` on the person's terminal: the gate takes a while, and then it asks."""
        one = self.one()
        if one is None:
            return
        words = ["swaps", "accept", one.name]
        try:
            run_suspended(self.app, command_of(words), self.root, wait=True)
        except (SuspendNotSupported, OSError):
            text = f"the terminal cannot be handed over; type: qrprof {' '.join(words)}"
            self.post_message(self.Said(text, problem=True))
        self.look_again()
