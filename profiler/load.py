"""A run from its folder: its record, and the trace or its columnar cache."""

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.runinfo import RunInfo, read_run_info
from qrprof.profiler.store import RUN_FILE, run_file
from qrprof.profiler.trace import Trace, read_cache, write_cache

if TYPE_CHECKING:  # readers are imported once a trace has to be read anew
    from qrprof.profiler.readers.chrome import Progress


def load_run(folder: Path, rank: int = 0, progress: "Progress | None" = None) -> tuple[RunInfo, Trace]:
    """Read a rank's run record and trace; the trace is kept beside the record as columns for the next time.

    Where there is no rank 0, 0 is the lowest rank. `progress` is told the bytes of the trace that were read, and all.
    Raises QrprofError where the rank is not there (exit code 2) or one of its files cannot be read.
    """
    record = record_of(folder, rank)
    if record is None:
        there = ", ".join(map(str, ranks(folder))) or "none"
        raise QrprofError(f"{folder} has no rank {rank}; its ranks: {there}", Exit.USAGE)
    run = read_run_info(record)
    source, cache = folder / run.trace, folder / cache_file(run.rank)
    imported = run.imported
    current = imported or not source.exists() or newer(cache, source)
    trace = read_cache(cache) if current else None
    if trace is None:
        from qrprof.profiler.read import of_rank

        trace = of_rank(source, run.rank, progress)
        if imported:  # the record has the reader's warnings
            trace = replace(trace, warnings=())
        with suppress(OSError):  # a folder that cannot be written only costs the next reader time
            write_cache(trace, cache)
    return run, trace


def cache_file(rank: int) -> str:
    return f"rank{rank}.events.parquet"


def record_of(folder: Path, rank: int) -> Path | None:
    """The run record of a rank: the lowest rank's is run.json."""
    if (folder / run_file(rank)).is_file():
        return folder / run_file(rank)
    return folder / RUN_FILE if rank in ranks(folder) else None


def ranks(folder: Path) -> list[int]:
    """The ranks that have a run record in the folder, in order."""
    found = (re.fullmatch(r"run(?:\.rank([0-9]+))?\.json", path.name) for path in folder.glob("run*.json"))
    return sorted(int(name[1]) if name[1] else lowest_rank(folder) for name in found if name)


def lowest_rank(folder: Path) -> int:
    """Of an imported run: 3 where only rank 3 was given."""
    try:
        return read_run_info(folder / RUN_FILE).rank
    except QrprofError:  # is said when that rank is loaded
        return 0


def newer(path: Path, than: Path) -> bool:
    try:
        return path.stat().st_mtime_ns > than.stat().st_mtime_ns
    except OSError:
        return False
