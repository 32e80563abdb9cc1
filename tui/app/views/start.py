"""What a person sees who has no run yet."""

from pathlib import Path
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from qrprof.tui.app.actions import START

EXAMPLE: Final = Path(__file__).parents[1] / "example"  # a run of examples/block_soap.py on a GPU

WELCOME: Final = """\
There is no run here yet.

A run is recorded by `qrprof trace SCRIPT`, of any PyTorch program as it is. It finds the program's steps, times them \
without a profiler, and records a few with one."""


class Start(Vertical):
    """Offers to trace a script, or to open the example run."""

    VIEW: ClassVar[str] = START
    DEFAULT_CSS = """
    Start { padding: 1 2; }
    Start OptionList { height: auto; margin-top: 1; background: transparent; }
    """

    class Chosen(Message):
        """`action` is the id of what is to be done."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def __init__(self) -> None:
        super().__init__(id=START)

    def compose(self) -> ComposeResult:
        yield Static(WELCOME, markup=False)
        yield OptionList(Option("Trace a script", id="trace"), Option("Open the example run", id="open_example"))

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        self.post_message(self.Chosen(str(message.option_id)))
