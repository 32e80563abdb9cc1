"""A task as a folder for an outside coding agent: contract, starting file, what is known, and how it is judged."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from qrprof.planner.optimize.prompt import PROPOSER, task_sections
from qrprof.planner.optimize.records import Known
from qrprof.profiler.errors import Exit, QrprofError

README: Final = "README.md"
CANDIDATE: Final = "candidate.py"  # to be edited
PARENT: Final = "parent.py"  # what it has to beat

JUDGED: Final = """\
Edit `{candidate}`. It is judged by

```
{command}
```

which takes a minute or a few, prints what it found and why, and ends with 0 (PASS), 1 (wrong, not faster, or
evidence that contradicts itself), 4 (evidence is missing) or 5 (the machine failed). The bound that a speedup has to
exceed grows with the number of files judged, and sealed inputs are asked only {queries} times for the whole task: make
your own checks first. `qrprof verdict` shows earlier ones."""


def fill(folder: Path, known: Known, queries: int, root: Path) -> str:
    """Fill `folder`, made if need be, and return the command that judges its candidate; it runs in `root`.

    Raises QrprofError: exit code 2 where a file of the folder is there already, 1 where it cannot be written.
    """
    command = gate_command(folder.resolve(), known.task.id, root)
    texts = {README: page(known, command, queries), CANDIDATE: known.start, PARENT: known.start}
    if there := [name for name in texts if (folder / name).exists()]:
        raise QrprofError(f"{folder / there[0]} is there already; name another folder", Exit.USAGE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise QrprofError(f"cannot write {folder}: {error.strerror}; name another folder") from None
    return command


def gate_command(folder: Path, task: str, root: Path) -> str:
    gate = ["qrprof", "gate", str(folder / CANDIDATE), "--task", task, "--parent", str(folder / PARENT)]
    return f"cd {shlex.quote(str(root.resolve()))} && {shlex.join(gate)}"


def page(known: Known, command: str, queries: int) -> str:
    parts = [
        f"# A faster aten::{known.task.op}",
        PROPOSER,
        *task_sections(known, lane=""),
        f"## How it is judged\n{JUDGED.format(candidate=CANDIDATE, command=command, queries=queries)}",
        *section("Lessons from elsewhere", known.lessons),
    ]
    return "\n\n".join(parts) + "\n"


def section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}\n" + "\n".join(f"- {line}" for line in lines)] if lines else []
