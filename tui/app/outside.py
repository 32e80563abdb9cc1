"""Other programs on a person's terminal: the tracing of a script, an editor, a clipboard."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from textual.app import App

QRPROF: Final = (sys.executable, "-m", "qrprof")
CLIPBOARDS: Final = (["wl-copy"], ["xclip", "-selection", "clipboard"], ["pbcopy"], ["clip.exe"])
PATIENCE_S: Final = 2.0  # for a clipboard's program
WITH_GOTO: Final = ("code", "codium", "cursor")  # editors that take --goto FILE:LINE
WITH_PLACE: Final = ("subl", "zed", "hx")  # editors that take FILE:LINE


def run_suspended(app: App[Any], command: Sequence[str], cwd: Path, *, wait: bool) -> int:
    """Run a command on the person's terminal and return its exit code; with `wait` until enter is pressed.

    Raises OSError where it cannot be started, SuspendNotSupported where the terminal cannot be handed over.
    """
    with app.suspend():
        print(f"$ {as_typed(command)}", flush=True)
        code = subprocess.run(command, cwd=cwd, check=False).returncode
        if wait:
            print(f"\nended with exit code {code}; press enter to go back ", end="", flush=True)
            sys.stdin.readline()
    return code


def command_of(words: Sequence[str]) -> list[str]:
    """`qrprof` with these words, by the interpreter that runs now."""
    return [*QRPROF, *words]


def as_typed(command: Sequence[str]) -> str:
    """A command as a person would type it."""
    own = tuple(command[: len(QRPROF)]) == QRPROF
    return shlex.join(["qrprof", *command[len(QRPROF) :]] if own else command)


def to_local_clipboard(text: str) -> bool:
    """Hand `text` to the clipboard program of this machine; whether there was one that took it."""
    for command in CLIPBOARDS:
        if shutil.which(command[0]):
            try:
                subprocess.run(command, input=text, text=True, check=True, capture_output=True, timeout=PATIENCE_S)
            except (OSError, subprocess.SubprocessError):
                continue
            return True
    return False


def editor_command(place: str, environment: Mapping[str, str]) -> list[str] | None:
    """The command that opens file:line; None without $VISUAL or $EDITOR."""
    words = shlex.split(environment.get("VISUAL") or environment.get("EDITOR") or "")
    if not words:
        return None
    path, _, line = place.rpartition(":")
    editor = Path(words[0]).stem
    if editor in WITH_GOTO:
        return [*words, "--goto", place]
    if editor in WITH_PLACE:
        return [*words, place]
    return [*words, f"+{line}", path]
