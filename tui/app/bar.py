"""The line in which a filter, a what-if or a file's name is typed."""

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

FIND, WHAT_IF, SAVE, TRACE = "find", "what_if", "save", "trace"  # what is asked for


class Bar(Horizontal):
    """Hidden until `ask` opens it for a `purpose`; what is typed is posted as it changes."""

    DEFAULT_CSS = """
    Bar { height: 1; display: none; background: $panel; }
    Bar.-open { display: block; }
    Bar > Static { width: auto; padding: 0 1; text-style: bold; }
    Bar > Input { width: 1fr; background: $panel; }
    """

    class Typed(Message):
        """`done`: enter was pressed."""

        def __init__(self, purpose: str, text: str, *, done: bool) -> None:
            super().__init__()
            self.purpose, self.text, self.done = purpose, text, done

    purpose: str | None = None  # None: closed

    def compose(self) -> ComposeResult:
        yield Static("", markup=False)
        field = Input(select_on_focus=False, compact=True)
        field.cursor_blink = False
        yield field

    def ask(self, purpose: str, label: str, text: str, hint: str) -> None:
        self.purpose = purpose
        self.query_one(Static).update(label)
        field = self.query_one(Input)
        with field.prevent(Input.Changed):
            field.value = text
        field.placeholder = hint
        field.cursor_position = len(text)
        self.add_class("-open")
        field.focus()

    def close(self) -> None:
        self.purpose = None
        self.remove_class("-open")

    def on_input_changed(self, message: Input.Changed) -> None:
        message.stop()
        if self.purpose:
            self.post_message(self.Typed(self.purpose, message.value, done=False))

    def on_input_submitted(self, message: Input.Submitted) -> None:
        message.stop()
        if self.purpose:
            self.post_message(self.Typed(self.purpose, message.value, done=True))
