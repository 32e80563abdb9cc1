"""`Trace`: the events of one process as integer-nanosecond columns, and its cache on disk."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qrprof.profiler.events import COLUMNS, DEVICE_WORK, HOST, MARK_PREFIX
from qrprof.profiler.store import replacing

CACHE_SCHEMA = "2"
MARK = re.compile(re.escape(MARK_PREFIX) + "([0-9]+)")

DEFAULTS: dict[str, Any] = {
    "device": HOST,
    "track": 0,
    "correlation": 0,
    "sequence": -1,
    "shapes": "",
    "dtypes": "",
    "bytes": -1,
    "awaits": 0,
    "awaits_stream": -1,
}


@dataclass(frozen=True)
class Trace:
    """Events sorted by start (longer first on ties), one row each; columns as in `events.COLUMNS`.

    `base_ns` is the wall time of the trace's zero. `warnings` says what the reader had to skip.
    """

    events: pd.DataFrame
    base_ns: int = 0
    warnings: tuple[str, ...] = ()
    complete: bool = True  # False: the file breaks off

    @staticmethod
    def from_rows(rows: Iterable[Mapping[str, Any]]) -> "Trace":
        """Build a trace from dicts; `kind`, `name`, `start` and `end` are required, the rest has defaults."""
        return Trace(to_columns({**DEFAULTS, **row} for row in rows))

    def of_kind(self, *kinds: str) -> pd.DataFrame:
        return self.events[self.events["kind"].isin(kinds)]

    def device_work(self) -> pd.DataFrame:
        """Kernels, copies and memsets: what keeps a device busy."""
        return self.of_kind(*DEVICE_WORK)

    def marks(self) -> list[tuple[int, int]]:
        """(step index, start ns) of the recorder's step boundaries, in order of time."""
        names = self.events["name"].cat.categories
        steps = {name: int(mark[1]) for name in names if (mark := MARK.fullmatch(name))}
        found = self.events[self.events["name"].isin(list(steps))]
        return [(steps[name], int(start)) for name, start in zip(found["name"], found["start"], strict=True)]


def to_columns(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows), columns=list(COLUMNS)).astype(COLUMNS)
    return sort_events(frame)


def sort_events(frame: pd.DataFrame) -> pd.DataFrame:
    order = np.lexsort((-frame["end"].to_numpy(), frame["start"].to_numpy()))  # stable; the last key counts first
    return frame.take(order).reset_index(drop=True)


def write_cache(trace: Trace, path: Path) -> None:
    """Write the columns as parquet, by a temporary name and a rename. Raises OSError where it cannot be written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(trace.events, preserve_index=False)
    meta = {"schema": CACHE_SCHEMA, "base_ns": str(trace.base_ns), "warnings": "\n".join(trace.warnings)}
    if not trace.complete:
        meta["breaks off"] = "yes"
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), **meta})
    with replacing(path) as temporary:
        pq.write_table(table, temporary)


def read_cache(path: Path) -> Trace | None:
    """Read a cache written by `write_cache`; None where it is missing, broken or of another schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        meta = table.schema.metadata or {}
        if meta.get(b"schema") != CACHE_SCHEMA.encode():
            return None
        warnings = tuple(line for line in meta[b"warnings"].decode().split("\n") if line)
        events = table.to_pandas()[list(COLUMNS)].astype(COLUMNS)
        return Trace(events, int(meta[b"base_ns"]), warnings, complete=b"breaks off" not in meta)
    except (OSError, pa.ArrowException, KeyError, ValueError):
        return None
