"""The last question before a person's programs run other code: all of it, and a key that nothing else has."""

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.style import Style
from textual.widgets import Static

from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.widgets.long_text import LongText

AGREE, REFUSE = "A: accept", "esc: change nothing"
BETWEEN: Final = "    "


class Agree(ModalScreen[bool]):
    """Answers with True where the person agreed."""

    DEFAULT_CSS = """
    Agree { align: center middle; }
    Agree > Vertical { width: 95%; height: 95%; background: $panel; padding: 0 1; }
    Agree VerticalScroll { height: 1fr; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(False)", show=False),
        Binding("A", "dismiss(True)", show=False),
    ]

    def __init__(self, question: str, lines: Sequence[Content], glyphs: Glyphs) -> None:
        super().__init__()
        self.question, self.lines, self.glyphs = question, lines, glyphs

    def compose(self) -> ComposeResult:
        agree = (AGREE, Style(bold=True) + Style.from_meta({"@click": "screen.dismiss(True)"}))
        refuse = (REFUSE, Style.from_meta({"@click": "screen.dismiss(False)"}))
        with Vertical():
            yield Static(Content(self.question))
            with VerticalScroll():
                yield LongText(self.glyphs)
            yield Static(Content.assemble(refuse, BETWEEN, agree))

    def on_mount(self) -> None:
        self.query_one(LongText).put(self.lines)
