"""`.qrprof/swaps.json` and the files beside it, made of the accepted swaps in the ledger, and one process at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from qrprof.kernels.swapfile import FILE, Entry, candidate_file, read, write
from qrprof.planner.ledger import looked_up
from qrprof.planner.swaps.store import listed
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.store import FOLDER, make_private, open_store, replacing

LOCK: Final = "swaps.lock"
LOCK_S: Final = 10.0  # that one process waits for another


def swaps_file(root: Path) -> Path:
    return root / FOLDER / FILE


@contextmanager
def deciding(root: Path) -> Iterator[None]:
    """No other process decides on the swaps of this folder meanwhile. Raises QrprofError where one does not end."""
    from filelock import FileLock, Timeout  # which is slow to import

    try:
        with FileLock(open_store(root) / LOCK, timeout=LOCK_S, mode=0o600):
            yield
    except Timeout:
        raise QrprofError(f"another qrprof decides on swaps in {root / FOLDER}; try again once it has ended") from None


def publish(root: Path) -> None:
    """Bring swaps.json in line with the ledger, whatever is in it; only while `deciding`.

    It is no permission to load anything: that is `kernels.trust`. Raises QrprofError where it cannot be written.
    """
    if not current(root):
        write(swaps_file(root), accepted(root))


def current(root: Path) -> bool:
    """Whether swaps.json says what the ledger does. Where no swap is accepted it need not be there."""
    path, wanted = swaps_file(root), accepted(root)
    return there(path) == wanted or not (wanted or os.path.lexists(path))


def accepted(root: Path) -> tuple[Entry, ...]:
    """Without torch, and without making a ledger."""
    return tuple(one.entry for one in looked_up(root, listed) if one.state == "accepted" and one.entry)


def there(path: Path) -> tuple[Entry, ...] | None:
    """What the file lists; None where it cannot be read."""
    try:
        return read(path)
    except QrprofError:
        return None


def write_candidate(root: Path, sha256: str, source: str) -> Path:
    """`.qrprof/candidates/<sha256's first digits>.py`, whole or not at all; the path is returned from `root` on."""
    open_store(root)
    file = candidate_file(Path(FOLDER, FILE), sha256)
    try:
        make_private((root / file).parent)
        with replacing(root / file) as temporary:
            temporary.write_bytes(source.encode())
    except OSError as error:
        raise QrprofError(f"cannot write {file}: {error.strerror}; make room, or {FOLDER} writable") from None
    return file
