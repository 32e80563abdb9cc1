"""A recorded run from its folder: what the recorder knows, and the trace or its columnar cache."""

import re
from contextlib import suppress
from pathlib import Path

from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.readers import kineto
from qrprof.profiler.runinfo import RunInfo, read_run_info
from qrprof.profiler.store import run_file
from qrprof.profiler.trace import Trace, read_cache, write_cache


def load_run(folder: Path, rank: int = 0) -> tuple[RunInfo, Trace]:
    """Read a rank's run record and trace; the trace is kept beside itself as columns for the next time.

    Raises QrprofError where the rank is not there (exit code 2) or one of its files cannot be read.
    """
    record = folder / run_file(rank)
    if not record.is_file():
        there = ", ".join(map(str, ranks(folder))) or "none"
        raise QrprofError(f"{folder} has no rank {rank}; its ranks: {there}", Exit.USAGE)
    run = read_run_info(record)
    source, cache = folder / run.trace, folder / f"rank{rank}.events.parquet"
    trace = read_cache(cache) if newer(cache, source) else None
    if trace is None:
        trace = kineto.read(source)
        with suppress(OSError):  # a folder that cannot be written only costs the next reader time
            write_cache(trace, cache)
    return run, trace


def ranks(folder: Path) -> list[int]:
    """The ranks that have a run record in the folder, in order."""
    found = (re.fullmatch(r"run(?:\.rank([0-9]+))?\.json", path.name) for path in folder.glob("run*.json"))
    return sorted(int(name[1] or 0) for name in found if name)


def newer(path: Path, than: Path) -> bool:
    try:
        return path.stat().st_mtime_ns > than.stat().st_mtime_ns
    except OSError:
        return False
