"""An app whose keys, help and palette are made of a table of actions."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from textual.app import App
from textual.binding import Binding
from textual.command import CommandPalette
from textual.dom import DOMNode

from qrprof.tui.app.actions import Action, State
from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.themes import CYCLE, OWN, following
from qrprof.tui.app.views.help import ActionProvider, Help

SHORTEST_S: Final = 5.0  # that a message stands
READ_PER_S: Final = 15  # characters of a message that a person reads


class Shell(App[None]):
    COMMANDS: ClassVar[set[Any]] = {ActionProvider}
    shown: str  # the name of the view on the screen

    def __init__(self, actions: Sequence[Action], glyphs: Glyphs, theme: str) -> None:
        super().__init__()
        self.actions, self.glyphs = actions, glyphs
        self.set_class(glyphs.ascii, "-ascii")
        self.by_id = {action.id: action for action in actions}
        bindings = [Binding(action.key, f"act('{action.id}')", action.label, show=False) for action in actions]
        for one in Binding.make_bindings(bindings):  # which knows the names of characters
            self.bind(one.key, one.action, description=one.description, show=False)
        for own in OWN:
            self.register_theme(own)
        self.theme = theme if theme in self.available_themes else CYCLE[0]

    # --- what a kind of app says of itself

    def state(self) -> State:
        raise NotImplementedError

    def doer(self, action: Action) -> DOMNode:
        """What has the method `action_<id>`."""
        raise NotImplementedError

    @property
    def small(self) -> bool:
        """Whether the terminal is too small for anything but to leave."""
        raise NotImplementedError

    # --- doing

    def possible(self) -> list[Action]:
        return [action for action in self.actions if self.shown in action.views]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "act":
            one = self.by_id[str(parameters[0])]
            return self.shown in one.views and (not self.small or one.id == "quit")
        return not self.small or action in ("quit", "help_quit")

    async def action_act(self, action_id: str) -> None:
        await self.do(self.by_id[action_id])

    async def do(self, action: Action) -> None:
        """Do it; where it cannot be done, say why."""
        if reason := action.enabled(self.state()):
            self.say(f"{action.label}: {reason}")
        else:
            await self.run_action(action.id, self.doer(action))

    def say(self, text: str, *, problem: bool = False) -> None:
        self.notify(
            self.glyphs.text(text),
            severity="error" if problem else "information",
            timeout=max(SHORTEST_S, len(text) / READ_PER_S),
            markup=False,
        )

    # --- what any such app can do

    def action_theme(self) -> None:
        self.theme = following(self.theme)
        self.say(f"theme {self.theme}")

    def action_help(self) -> None:
        state = self.state()
        listed = [(action, action.enabled(state)) for action in self.possible() if action.id != "help"]
        self.push_screen(Help(state.view, listed), self.after_help)

    def after_help(self, action: Action | None) -> None:
        if action:
            self.run_worker(self.do(action), exit_on_error=False)

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandPalette(placeholder="an action", id="--command-palette"))
