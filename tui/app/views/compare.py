"""The runs that the open one can be compared with."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from qrprof.profiler import units
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.store import RUN_FILE, run_folders
from qrprof.tui.output import clean


def runs_beside(root: Path, folder: Path) -> list[Path]:
    """The other runs of a working folder, the newest first."""
    return [one for one in run_folders(root) if one.resolve() != folder.resolve()][::-1]


def describe(folder: Path) -> str:
    """A run's id, command and step."""
    from qrprof.profiler.runinfo import read_run_info

    try:
        run = read_run_info(folder / RUN_FILE)
    except QrprofError as error:
        return f"{folder.name}  cannot be read: {error}"
    return f"{folder.name}  {units.time(run.step_ns())}  {' '.join(run.command)}"


class RunChooser(ModalScreen[Path]):
    """Answers with the folder of the run chosen; None: none was."""

    DEFAULT_CSS = """
    RunChooser { align: center middle; }
    RunChooser > Vertical { width: 90%; height: auto; max-height: 80%; background: $panel; padding: 0 1; }
    RunChooser OptionList { height: auto; max-height: 100%; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", show=False)]

    def __init__(self, folders: Sequence[Path]) -> None:
        super().__init__()
        self.folders = folders

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static("Compare with (enter; esc: none)")
            yield OptionList(*(Option(Content(clean(describe(folder)))) for folder in self.folders), compact=True)

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        self.dismiss(self.folders[message.option_index])
