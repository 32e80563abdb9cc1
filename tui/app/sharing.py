"""What a view shows, given to others: copies, files, and a person's editor."""

import os
from pathlib import Path
from typing import Any

from textual.app import SuspendNotSupported

from qrprof.profiler.errors import QrprofError
from qrprof.tui.app.bar import Bar, Question
from qrprof.tui.app.export import export, markdown, tsv
from qrprof.tui.app.outside import editor_command, run_suspended, to_local_clipboard
from qrprof.tui.app.shell import Shell
from qrprof.tui.app.views import Shown, View


class Sharing(Shell):
    root: Path  # the working folder

    @property
    def view(self) -> View[Any] | None:
        """The one that is shown; None: the start screen is."""
        raise NotImplementedError

    def ask(self, question: Question) -> None:
        self.query_one(Bar).ask(question)

    def table(self) -> Shown:
        return self.view.table() if self.view else Shown([], [])

    def action_copy_row(self) -> None:
        row = self.view.row() if self.view else None
        if row is None:
            self.say("no row is selected")
        else:
            self.copy(tsv(row), "the row")

    def action_copy_view(self) -> None:
        text = self.view.text() if self.view else None
        self.copy(markdown(self.table()) if text is None else text, f"the {self.shown} view")

    def copy(self, text: str, what: str) -> None:
        self.copy_to_clipboard(text)
        self.say(f"copied {what}, {len(text)} characters (some terminals refuse to be asked)")
        self.run_worker(lambda: to_local_clipboard(text), thread=True, exit_on_error=False)

    def action_export(self) -> None:
        self.picture = self.export_screenshot(title=f"qrprof {self.shown}")
        name = f"qrprof-{self.shown}.csv"
        self.ask(Question("export to", name, "a file that ends in .csv, .json or .svg", done=self.save))

    def save(self, text: str) -> None:
        path = self.root / Path(text.strip()).expanduser()
        try:
            export(path, self.table(), self.picture)
        except QrprofError as error:
            self.say(str(error), problem=True)
        else:
            self.say(f"wrote {path}")

    def action_edit(self) -> None:
        place = (self.view.place() if self.view else None) or ""
        command = editor_command(place, os.environ)
        if command is None:
            self.copy(place, f"{place}, since $EDITOR is not set")
            return
        try:
            run_suspended(self, command, self.root, wait=False)
        except (SuspendNotSupported, OSError) as error:
            self.copy(place, f"{place}, since {command[0]} cannot be started ({error})")
