"""Tasks on disk: `.qrprof/tasks/<id>/task.json`. Reads and writes without torch."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from qrprof.planner.gate.records import SCHEMA, Task
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.runinfo import schema_number
from qrprof.profiler.store import FOLDER, make_private, matching, open_store, replacing

TASKS: Final = "tasks"
TASK_FILE: Final = "task.json"
TASK: Final = TypeAdapter(Task)
DIGITS: Final = 6  # of the hash in an id
SHOWN: Final = 3  # ids in an error


def keep(root: Path, task: Task) -> Task:
    """Write the task under `root/.qrprof` and return it with its id, which ends in a hash of all that it asks.

    The same task made again is the same file; one that asks anything else is another task, so that what was found of
    candidates by one is never taken for the other. Raises QrprofError where it cannot be written.
    """
    digest = hashlib.sha256(written(task)).hexdigest()[:DIGITS]
    kept = replace(task, id=f"{task.id}-{digest}")
    folder = open_store(root) / TASKS / kept.id
    try:
        make_private(folder)
        with replacing(folder / TASK_FILE) as temporary:
            temporary.write_bytes(written(kept))
    except OSError as error:
        raise QrprofError(f"cannot write {folder}: {error.strerror}; make room, or make it writable") from None
    return kept


def written(task: Task) -> bytes:
    """JSON, in which an infinity stays one: pydantic would write null."""
    return json.dumps(asdict(task), indent=1).encode()


def task_folders(root: Path) -> Iterator[Path]:
    """Folders of whole tasks, oldest first."""
    found = (root / FOLDER / TASKS).glob(f"*/{TASK_FILE}")
    yield from (path.parent for path in sorted(found, key=lambda path: (path.stat().st_mtime_ns, path)))


def load_task(root: Path, name: str) -> Task:
    """The task called `name`: an id, or the unique start of one.

    Raises QrprofError: exit code 2 where none or several match, and where the file cannot be read.
    """
    folders = list(task_folders(root))
    if not folders:
        raise QrprofError(
            f"no tasks in {root / FOLDER}; make one with `qrprof task new --from RUN --op OP` or `--qr SET`", Exit.USAGE
        )
    names = [folder.name for folder in folders]
    matches = matching(names, name)
    if len(matches) != 1:
        known = ", ".join((matches or names)[-SHOWN:])
        problem = "is ambiguous" if matches else "is unknown"
        raise QrprofError(f"task {name!r} {problem}; there are {known}; list all with `qrprof task list`", Exit.USAGE)
    return read_task(folders[names.index(matches[0])] / TASK_FILE)


def read_task(path: Path) -> Task:
    """Raises QrprofError where the file is no task, or of another schema."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise QrprofError(f"cannot read {path}: {error.strerror}; list tasks with `qrprof task list`") from None
    number = schema_number(text)
    if number is not None and number != SCHEMA:
        raise QrprofError(f"{path} has schema {number}, this qrprof reads {SCHEMA}: make the task anew")
    try:
        return TASK.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise QrprofError(f"{path} is no task ({where}: {first['msg']}); make the task anew") from None
