"""`.qrprof/` in the working folder: where runs are kept, and which one is meant."""

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import chain
from pathlib import Path

import platformdirs

from qrprof.profiler.errors import Exit, QrprofError

FOLDER = ".qrprof"
RUN_FILE = "run.json"


def cache_folder() -> Path:
    """The user's cache: what belongs to no project (measured devices, matrix samples). $QRPROF_CACHE overrides it."""
    return Path(os.environ.get("QRPROF_CACHE") or platformdirs.user_cache_dir("qrprof"))


def config_folder() -> Path:
    """The user's configuration: what a person decided or wrote for this machine. $QRPROF_CONFIG overrides it."""
    return Path(os.environ.get("QRPROF_CONFIG") or platformdirs.user_config_dir("qrprof"))


def make_private(folder: Path) -> None:
    """Make a folder that only its user enters, and so what is missing above it. Raises OSError."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`, renamed to it at the end; nothing is left of a failed write.

    Nobody can foresee it: two processes may write the same file, and no link waits in a folder of someone else's.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file that only the user reads (mode 0600), whole or not at all."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with replacing(path) as temporary, open(os.open(temporary, flags, 0o600), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def run_file(rank: int) -> str:
    """File name of a rank's run record in the run's folder."""
    return RUN_FILE if rank == 0 else f"run.rank{rank}.json"


def open_store(root: Path) -> Path:
    """Make `root/.qrprof` (mode 0700, ignored by git) if needed and return it.

    Raises QrprofError where the folder cannot be written, or holds links: what is kept would be elsewhere.
    """
    store = root / FOLDER
    try:
        root.mkdir(parents=True, exist_ok=True)
        require_no_links(store)
        make_private(store)
        store.chmod(0o700)
        make_private(store / "runs")
        ignore = store / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        probe = store / f".probe-{os.getpid()}"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise QrprofError(
            f"cannot write {store}: {error.strerror}; make the folder writable, or work in another (a trace: --out)"
        ) from None
    return store


def require_no_links(store: Path) -> None:
    """Raises QrprofError (exit code 3): a link in a folder that was cloned or unpacked was made by someone else."""
    for path in chain((store,), store.glob("*")):
        if path.is_symlink():
            raise QrprofError(f"{path} is a link; remove it, and qrprof makes its own", Exit.REFUSED)


def new_run_id(script: str, now: datetime) -> str:
    """`20260131-235959-train`: sorts by time and says what ran."""
    stem = re.sub(r"[^A-Za-z0-9_]+", "-", Path(script).stem).strip("-")[:40] or "run"
    return f"{now:%Y%m%d-%H%M%S}-{stem}"


def make_run_folder(runs: Path, run_id: str) -> Path:
    """Make a new folder for a run; a taken id gets `-2`, `-3`, ..."""
    for number in range(1, 1000):
        folder = runs / (run_id if number == 1 else f"{run_id}-{number}")
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise QrprofError(f"cannot write {folder}: {error.strerror}; give another folder with --out") from None
        return folder
    raise QrprofError(f"no free name for run {run_id} in {runs}; remove old runs")


def run_folders(root: Path) -> Iterator[Path]:
    """Complete runs in `root/.qrprof`, oldest first. A folder without `run.json` is not a run."""
    runs = root / FOLDER / "runs"
    if runs.is_dir():
        found = [folder for folder in runs.iterdir() if (folder / RUN_FILE).is_file()]
        yield from sorted(found, key=lambda folder: (folder / RUN_FILE).stat().st_mtime_ns)


def matching(ids: Sequence[str], wanted: str) -> list[str]:
    """The id that is `wanted`, else all that begin so."""
    return [one for one in ids if one == wanted] or [one for one in ids if one.startswith(wanted)]


def find_run(root: Path, name: str | None) -> Path:
    """The folder of the run called `name`: an id, the unique start of one, a path, or None for the last run.

    Raises QrprofError (exit code 2) where none or several match.
    """
    if name is not None and (Path(name) / RUN_FILE).is_file():
        return Path(name)
    folders = list(run_folders(root))
    if not folders:
        raise QrprofError(f"no runs in {root / FOLDER}; record one with `qrprof trace train.py`", Exit.USAGE)
    if name is None:
        return folders[-1]
    names = [folder.name for folder in folders]
    matches = matching(names, name)
    if len(matches) == 1:
        return folders[names.index(matches[0])]
    known = ", ".join((matches or names)[-3:])
    problem = "is ambiguous" if matches else "is unknown"
    raise QrprofError(
        f"run {name!r} {problem} in {root / FOLDER}; it has {known}; list all with `qrprof runs`", Exit.USAGE
    )
