"""One measurement at a time on a device, whoever measures: a file lock for each GPU, and one for a machine's CPU.

The system lets go of a lock when its holder is gone, however that ended.
"""

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from filelock import FileLock, Timeout

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.store import cache_folder, make_private

FOLDER: Final = "slots"
LOOK_S: Final = 0.1  # between two looks whether a slot is free


def slot_of(machine: Mapping[str, str]) -> str:
    """Of a device, as `gate.environment.machine` tells of it.

    The cache folder may be shared by machines; GPUs have names that no other has.
    """
    return machine.get("uuid", f"cpu-{platform.node()}")


@contextmanager
def held(slot: str, waiting: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Hold a slot; where somebody else has it, wait inside `waiting`. Raises QrprofError where there can be no lock."""
    lock = FileLock(cache_folder() / FOLDER / f"{slot}.lock")
    try:
        make_private(cache_folder() / FOLDER)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            with waiting():
                lock.acquire(poll_interval=LOOK_S)
    except OSError as error:
        raise QrprofError(
            f"cannot lock {lock.lock_file}: {error.strerror}; make it writable, or set QRPROF_CACHE to another folder"
        ) from None
    try:
        yield
    finally:
        lock.release()
