"""What this user accepted on this machine: `trusted.json` in the user's configuration folder, by project.

It is what lets code run with a program's rights. A folder that was cloned or copied brings none of it along. Only
accepting a swap adds to it.
"""

import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from pydantic import TypeAdapter, ValidationError

from qrprof.kernels.swapfile import Entry
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.store import config_folder, make_private, write_private

FILE: Final = "trusted.json"
SCHEMA: Final = 1
LOCK_S: Final = 10.0  # that one process waits for another
OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Trusted:
    project: str  # its folder, resolved
    name: str  # of the entry
    sha256: str  # of the source
    verdict: str  # id; "": none
    entry: str  # digest of all that was accepted with the source: op, calls, device
    at: str  # ISO 8601, UTC


ALL: Final = TypeAdapter(tuple[Trusted, ...])


def trusted(project: Path) -> frozenset[str]:
    """Digests (`Entry.digest`) of what this user accepted in a project, a resolved folder.

    None where the file is missing, and where it cannot be relied on: one line on stderr then says why.
    """
    try:
        return frozenset(one.entry for one in kept() if one.project == str(project))
    except QrprofError as error:
        print(f"qrprof: no swap is trusted: {error}", file=sys.stderr)
        return frozenset()


def trust(project: Path, entry: Entry, now: datetime) -> None:
    """Let the programs of a project load this entry, and none that was accepted under its name before.

    Raises QrprofError where that cannot be kept.
    """
    at = now.astimezone(UTC).isoformat(timespec="seconds")
    made = Trusted(str(project), entry.name, entry.sha256, entry.verdict, entry.digest, at)
    with changing() as before:
        write([*without(before, project, entry), made])


def distrust(project: Path, entry: Entry) -> None:
    """Let no program of the project load what was accepted under this entry's name any more.

    Raises QrprofError where that cannot be kept.
    """
    with changing() as before:
        left = without(before, project, entry)
        if len(left) < len(before):
            write(left)


def without(before: Iterable[Trusted], project: Path, entry: Entry) -> list[Trusted]:
    return [one for one in before if (one.project, one.name) != (str(project), entry.name)]


# --- the file


def kept() -> tuple[Trusted, ...]:
    """Raises QrprofError where the file is damaged, or someone else could have written it."""
    folder = config_folder()
    path = folder / FILE
    try:
        with path.open(encoding="utf-8") as file:
            require_private(path, file)
            record = json.load(file)
        if record["schema"] != SCHEMA:
            raise QrprofError(f"{path} has schema {record['schema']}, this qrprof reads {SCHEMA}")
        return ALL.validate_python(record["trusted"])
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise QrprofError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError, ValidationError):
        raise QrprofError(f"{path} is damaged; move it away and accept again") from None


def require_private(path: Path, file: IO[Any]) -> None:
    """That neither the open file nor its folder is another user's, or can be written by one.

    Raises OSError, and QrprofError (exit code 3) where it is not so.
    """
    for what, found in ((path.parent, path.parent.stat()), (path, os.fstat(file.fileno()))):
        if found.st_uid != os.geteuid():
            raise QrprofError(f"{what} is owned by another user; move it away and accept again", Exit.REFUSED)
        if found.st_mode & OTHERS:
            raise QrprofError(f"others can write {what}; look at it, then `chmod go-w {what}`", Exit.REFUSED)


@contextmanager
def changing() -> Iterator[tuple[Trusted, ...]]:
    """What is trusted, with no other process changing it meanwhile."""
    from filelock import FileLock, Timeout  # which is slow to import

    folder = config_folder()
    try:
        make_private(folder)
        with FileLock(folder / f"{FILE}.lock", timeout=LOCK_S, mode=0o600):
            yield kept()
    except Timeout:
        raise QrprofError(f"another process changes {folder / FILE}; try again once it has ended") from None
    except OSError as error:
        raise QrprofError(f"cannot write {folder / FILE}: {error.strerror}; make it writable") from None


def write(entries: list[Trusted]) -> None:
    record = {"schema": SCHEMA, "trusted": [asdict(one) for one in entries]}
    write_private(config_folder() / FILE, json.dumps(record, indent=1) + "\n")
