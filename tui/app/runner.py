"""`qrprof optimize` in a process of its own: what it prints goes to a file, what it finds to the ledger.

It does not depend on the app, which may leave and let it go on.
"""

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from qrprof.tui.app.outside import command_of

TALK: Final = "qrprof: "  # before each line of talk
LAST: Final = 65536  # bytes of what it printed that are looked at
PATIENCE_S: Final = 10.0  # until one that was asked to end is killed


class Runner:
    def __init__(self, words: Sequence[str], folder: Path) -> None:
        """Start it in a folder. Raises OSError where that cannot be done."""
        handle, name = tempfile.mkstemp(prefix="qrprof-optimize-", suffix=".log")
        self.printed = Path(name)
        try:
            self.process = subprocess.Popen(
                command_of(["optimize", *words]),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=handle,
                start_new_session=True,  # a terminal that closes does not end it
            )
        finally:
            os.close(handle)
        self.optimization: str | None = None  # its id, once it has begun
        self.paused = False

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def begun(self, optimizations: Sequence[str]) -> str | None:
        """Which of these it said that it begins, or goes on with; from then on it hears signals."""
        lines = self.lines()
        return next((one for one in optimizations if any(line.startswith(f"{TALK}{one}: ") for line in lines)), None)

    def pause(self) -> None:
        """After the evaluation under way. Only once it has begun: it hears no such signal before."""
        self.paused = True
        self.process.send_signal(signal.SIGUSR1)

    def go_on(self) -> None:
        self.paused = False
        self.process.send_signal(signal.SIGUSR2)

    def cancel(self) -> None:
        """What runs is ended, and all is kept; asked again, at once."""
        self.process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """Cancel it and wait until it has ended."""
        self.cancel()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def lines(self) -> list[str]:
        """The last that it printed."""
        with self.printed.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - LAST, 0))
            return file.read().decode(errors="replace").splitlines()

    def last_words(self) -> str:
        """One line of how it has ended."""
        if (code := self.process.poll()) and code < 0:
            return f"it was ended by {signal.Signals(-code).name}; what it found is kept"
        lines = [line.strip() for line in self.lines() if line.strip()]
        return lines[-1].removeprefix(TALK) if lines else "it printed nothing"

    def forget(self) -> None:
        """Remove what it printed."""
        with suppress(OSError):
            self.printed.unlink()
