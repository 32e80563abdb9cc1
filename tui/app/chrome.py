"""The lines around a view: tabs, keys, and a status cut to the screen."""

from collections.abc import Iterable
from typing import Final

from textual.content import Content
from textual.style import Style

from qrprof.tui.app.actions import EVERYWHERE, Action, State
from qrprof.tui.app.keymap import keys_of

AROUND: Final = 3  # cells of a tab beside its key and its name
CUT: Final = 4  # letters
APART: Final = "  "


def button(action: Action, style: Style) -> Style:
    """The style of words that do the action when they are clicked."""
    return style + Style.from_meta({"@click": f"app.act('{action.id}')"})


def tabs(actions: Iterable[Action], shown: str, width: int) -> Content:
    """The views by number, that which is shown in brackets; without room the names of the others are cut."""
    listed = list(actions)
    room = sum(len(keys_of(one)) + len(one.label) + AROUND for one in listed) <= width
    parts = []
    for action in listed:
        here = action.id == shown
        words = f"{keys_of(action)} {action.label if here or room else action.label[:CUT]}"
        parts.append((f"[{words}]" if here else f" {words} ", button(action, Style(bold=here, reverse=here))))
    return Content.assemble(*parts)


def keys(actions: Iterable[Action], state: State, width: int) -> Content:
    """The actions of the footer that have room: those that are everywhere first, then the view's own; dim: not now."""
    listed = [(action, f"{keys_of(action)} {action.label}") for action in actions if action.footer]
    room, kept = width, []
    for action, words in sorted(listed, key=lambda pair: (pair[0].views != EVERYWHERE, len(pair[0].views))):
        if len(words) <= room:
            kept.append(action)
            room -= len(words) + len(APART)
    parts: list[str | tuple[str, Style]] = []
    for action, words in listed:
        if action in kept:
            parts += [(words, button(action, Style(dim=action.enabled(state) is not None))), APART]
    return Content.assemble(*parts)
