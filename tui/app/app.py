"""The app: the views of a run, one selection for all of them, and the keys of the table of actions."""

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import ContentSwitcher, Static

from qrprof.tui.app.actions import ACTIONS, Action, State, named
from qrprof.tui.app.session import NOTHING, Selection, Session
from qrprof.tui.app.views import Selected, View
from qrprof.tui.app.views.bottlenecks import Bottlenecks

SMALLEST: Final = (60, 16)  # columns and lines
VIEWS: Final[tuple[type[View[Any]], ...]] = (Bottlenecks,)


def bindings() -> Iterator[Binding]:
    for action in ACTIONS:
        yield Binding(action.key, f"act('{action.id}')", action.label, show=action.footer, id=action.id)


class QrprofApp(App[None]):
    """Shows one run."""

    TITLE = "qrprof"
    BINDINGS: ClassVar[list[BindingType]] = list(bindings())

    def __init__(self, session: Session | None) -> None:
        super().__init__()
        self.session = session
        self.other: Session | None = None
        self.selection: Selection = NOTHING

    def compose(self) -> ComposeResult:
        yield Static("", id="header", markup=False)
        with ContentSwitcher(id="views", initial=VIEWS[0].VIEW):
            for view in VIEWS:
                yield view()

    def on_mount(self) -> None:
        self.open_view(VIEWS[0].VIEW)

    # --- views

    @property
    def view(self) -> View[Any]:
        """The one that is shown."""
        switcher = self.query_one("#views", ContentSwitcher)
        return self.query_one(f"#{switcher.current}", View)

    def open_view(self, name: str) -> None:
        self.query_one("#views", ContentSwitcher).current = name
        if self.session:
            self.view.open(self.session, self.other)

    def on_selected(self, message: Selected) -> None:
        self.selection = message.selection

    # --- actions

    def state(self) -> State:
        return State(view=self.view.VIEW, loaded=self.view.ready, selection=self.selection, place=self.view.place())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "act" or self.view.VIEW in named(str(parameters[0])).views

    async def action_act(self, action_id: str) -> None:
        await self.do(named(action_id))

    async def do(self, action: Action) -> None:
        """Do it, in the view or in the app; where it cannot be done, say why."""
        if reason := action.enabled(self.state()):
            self.notify(f"{action.label}: {reason}", markup=False)
            return
        owner = self.view if hasattr(self.view, f"action_{action.id}") else self
        await self.run_action(action.id, owner)
