"""A patch of one of the user's files: the diff that is shown is applied, to that very file or to none."""

import difflib
import hashlib
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from qrprof.planner.patches.diffs import lines_of, patched
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.store import FOLDER, replacing

Standing = Literal["base", "applied", "changed"]


@dataclass(frozen=True)
class Patch:
    path: str  # from the project's folder on, with slashes
    base_sha256: str  # of the file that the diff is of
    diff: str  # unified
    title: str  # what it does, and where
    why: str


def made(path: str, before: bytes, after: bytes, title: str, why: str) -> Patch:
    """`before` and `after` are UTF-8."""
    lines = difflib.unified_diff(lines_of(before.decode()), lines_of(after.decode()), f"a/{path}", f"b/{path}")
    diff = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return Patch(path, sha256(before), diff, title, why)


def text(patch: Patch) -> str:
    """What a person reads before deciding."""
    return f"{patch.title}\n{patch.why}\n\n{patch.diff}"


def standing(root: Path, patch: Patch) -> Standing:
    """What the file is by now. Raises QrprofError as `own_file` does."""
    now = read(own_file(root, patch.path), patch)
    if sha256(now) == patch.base_sha256:
        return "base"
    return "applied" if before(now, patch) is not None else "changed"


def apply(root: Path, patch: Patch) -> None:
    """Whole or not at all. Raises QrprofError (exit code 3) where the file is not the one that the diff was made of."""
    file = own_file(root, patch.path)
    now = read(file, patch)
    after = patched(now.decode(), patch.diff, patch.path) if sha256(now) == patch.base_sha256 else None
    if after is None:
        raise refusal(patch.path, "it has changed since the patch was made: look for a new one")
    write(file, after.encode())


def undo(root: Path, patch: Patch) -> None:
    """To the very bytes from before. Raises QrprofError (exit code 3) where the file has been changed since."""
    file = own_file(root, patch.path)
    found = before(read(file, patch), patch)
    if found is None:
        raise refusal(patch.path, "it has changed since the patch was applied: take the change back by hand")
    write(file, found)


def before(now: bytes, patch: Patch) -> bytes | None:
    """The file without the patch; None where that is not what the patch was made of."""
    try:
        found = patched(now.decode(), patch.diff, patch.path, reverse=True)
    except UnicodeDecodeError:
        return None
    return found.encode() if found is not None and sha256(found.encode()) == patch.base_sha256 else None


def own_file(root: Path, path: str) -> Path:
    """A Python file of the project. Raises QrprofError (exit code 3) where it is outside, behind a link, or none."""
    parts = PurePosixPath(path).parts
    if (
        PurePosixPath(path).is_absolute()
        or ".." in parts
        or not path.isprintable()
        or parts[:1] in ((FOLDER,), (".git",))
    ):
        raise refusal(path, "it is not a file of the project")
    at = root.resolve()
    for part in parts:
        at = at / part
        try:
            mode = at.lstat().st_mode
        except OSError as error:
            raise refusal(path, f"{error.strerror}".lower()) from None
        if stat.S_ISLNK(mode):
            raise refusal(path, "it is reached through a link")
    if at.suffix != ".py" or not stat.S_ISREG(mode):
        raise refusal(path, "it is not a Python file")
    return at


def read(file: Path, patch: Patch) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise refusal(patch.path, f"{error.strerror}".lower()) from None


def write(file: Path, content: bytes) -> None:
    try:
        with replacing(file) as temporary:
            temporary.write_bytes(content)
            shutil.copymode(file, temporary)
    except OSError as error:
        raise QrprofError(f"cannot write {file}: {error.strerror}; make it and its folder writable") from None


def refusal(path: str, why: str) -> QrprofError:
    return QrprofError(f"{path} is left as it is: {why}", Exit.REFUSED)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
