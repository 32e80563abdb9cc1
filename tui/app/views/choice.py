"""A question with a few answers, of which the first one changes nothing."""

from collections.abc import Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option


class Choice(ModalScreen[str]):
    """Answers with the name of what was chosen; None: nothing was."""

    DEFAULT_CSS = """
    Choice { align: center middle; }
    Choice > Vertical { width: 90%; max-width: 90; height: auto; max-height: 80%; background: $panel; padding: 0 1; }
    Choice OptionList { height: auto; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", show=False)]

    def __init__(self, question: str, answers: Mapping[str, str]) -> None:
        super().__init__()
        self.question, self.answers = question, answers

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content(f"{self.question} (enter; esc: no)"))
            yield OptionList(*(Option(Content(text), id=name) for name, text in self.answers.items()), compact=True)

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        self.dismiss(message.option_id)
