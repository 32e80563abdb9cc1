"""What the swaps of a program did: written by its process at the end, read by whoever started it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.store import replacing

SCHEMA = 1


def write(path: Path) -> None:
    """Raises QrprofError where it cannot be written. Waits for GPUs."""
    from qrprof.kernels import swap

    loaded = swap.loaded()
    record = {
        "schema": SCHEMA,
        "refused": loaded.refused,
        "adapters": [entry.name for entry in loaded.adapters],
        "swaps": [asdict(one) for one in swap.report()],
    }
    try:
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(record), encoding="utf-8")
    except OSError as error:
        raise QrprofError(f"cannot write the report of the swaps to {path}: {error.strerror}") from None


def read(path: Path) -> dict[str, Any] | None:
    """The record; None where the program ended without one: by a signal, by `os._exit`, or before it imported torch."""
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record
