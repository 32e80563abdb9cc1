"""The line in which a filter, a what-if, a command's options or a file's name is typed."""

from collections.abc import Callable
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

Hear = Callable[[str], None]


def ignore(text: str) -> None:
    """Whoever asked waits for the end."""


@dataclass(frozen=True)
class Question:
    """`done` hears what stands there at enter; `typed` what does as it changes, and "" where it is dropped."""

    label: str
    text: str  # to begin with
    hint: str  # shown while nothing stands there
    done: Hear = ignore
    typed: Hear = ignore


class Bar(Horizontal):
    """Hidden until `ask` opens it."""

    DEFAULT_CSS = """
    Bar { height: 1; display: none; background: $panel; }
    Bar.-open { display: block; }
    Bar > Static { width: auto; padding: 0 1; text-style: bold; }
    Bar > Input { width: 1fr; background: $panel; }
    """

    class Wanted(Message):
        """A view has a question."""

        def __init__(self, question: Question) -> None:
            super().__init__()
            self.question = question

    class Closed(Message):
        """The keys are for the view again."""

    question: Question | None = None  # None: closed

    def compose(self) -> ComposeResult:
        yield Static("", markup=False)
        field = Input(select_on_focus=False, compact=True)
        field.cursor_blink = False
        yield field

    def ask(self, question: Question) -> None:
        self.question = question
        self.query_one(Static).update(question.label)
        field = self.query_one(Input)
        with field.prevent(Input.Changed):
            field.value = question.text
        field.placeholder = question.hint
        field.cursor_position = len(question.text)
        self.add_class("-open")
        field.focus()

    def close(self) -> None:
        self.question = None
        self.remove_class("-open")
        self.post_message(self.Closed())

    def drop(self) -> bool:
        """Close it without an answer; False where it is closed."""
        question = self.question
        if question is None:
            return False
        self.close()
        question.typed("")
        return True

    def on_input_changed(self, message: Input.Changed) -> None:
        message.stop()
        if self.question:
            self.question.typed(message.value)

    def on_input_submitted(self, message: Input.Submitted) -> None:
        message.stop()
        if question := self.question:
            self.close()
            question.done(message.value)
