"""The keys of a view, found by typing, done by enter; and the same in the palette."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from qrprof.tui.app.actions import Action
from qrprof.tui.app.filters import spelled
from qrprof.tui.app.keymap import keys_of

if TYPE_CHECKING:
    from qrprof.tui.app.shell import Shell

BESIDE: Final = (
    "ctrl+p: all of these by name. Enter on a row of others opens it. Mouse: click, wheel, headers. "
    "To select text for the terminal: shift and drag."
)

KEYS: Final = 8  # cells
LABELS: Final = 13


class Help(ModalScreen[Action]):
    """Answers with the action to be done."""

    DEFAULT_CSS = """
    Help { align: center middle; }
    Help > Vertical { width: 90%; max-width: 100; height: 90%; background: $panel; padding: 0 1; }
    Help OptionList { height: 1fr; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("down", "move('cursor_down')", show=False),
        Binding("up", "move('cursor_up')", show=False),
    ]

    def __init__(self, title: str, actions: Sequence[tuple[Action, str | None]]) -> None:
        super().__init__()
        self.title, self.actions = title, actions
        self.found = list(actions)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(f"Keys in {self.title} (type to find, enter does it, esc closes)", markup=False)
            field = Input(placeholder="find", compact=True)
            field.cursor_blink = False
            yield field
            yield OptionList(compact=True)
            yield Static(BESIDE, markup=False)

    def on_mount(self) -> None:
        self.fill("")
        self.query_one(Input).focus()

    def on_input_changed(self, message: Input.Changed) -> None:
        self.fill(message.value)

    def fill(self, text: str) -> None:
        words = text.lower().split()
        self.found = [pair for pair in self.actions if all(spelled(word, line(*pair).lower()) for word in words)]
        listed = self.query_one(OptionList)
        listed.clear_options()
        listed.add_options([Option(drawn(*pair)) for pair in self.found])
        if self.found:
            listed.highlighted = 0

    def action_move(self, how: str) -> None:
        getattr(self.query_one(OptionList), f"action_{how}")()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        place = self.query_one(OptionList).highlighted
        self.dismiss(self.found[place][0] if self.found and place is not None else None)

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        self.dismiss(self.found[message.option_index][0])


def cells(action: Action, reason: str | None) -> tuple[str, str, str]:
    """An action's keys, its name, and what it does; why it cannot be done now."""
    return keys_of(action), action.label, f"{action.help} (not now: {reason})" if reason else action.help


def line(action: Action, reason: str | None) -> str:
    return " ".join(cells(action, reason))


def drawn(action: Action, reason: str | None) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=KEYS)
    grid.add_column(width=LABELS)
    grid.add_column()
    grid.add_row(*(Text(cell) for cell in cells(action, reason)))
    return grid


class ActionProvider(Provider):
    """The table of actions for the palette."""

    @property
    def own(self) -> "Shell":
        from qrprof.tui.app.shell import Shell

        assert isinstance(self.app, Shell)
        return self.app

    async def discover(self) -> Hits:
        for action in self.own.possible():
            yield DiscoveryHit(action.label, lambda one=action: self.own.do(one), help=action.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action in self.own.possible():
            text = f"{action.label}: {action.help}"
            if (score := matcher.match(text)) > 0:
                yield Hit(score, matcher.highlight(text), lambda one=action: self.own.do(one), help=keys_of(action))
