"""Tables of an Nsight Systems SQLite export as columns of integers, whatever its version holds of them."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.nesting import Ints
from qrprof.profiler.readers.chrome import Progress
from qrprof.profiler.readers.metadata import NAME_LIMIT, UNKNOWN_GPU, natural
from qrprof.profiler.readers.texts import Masked, clean
from qrprof.profiler.runinfo import DeviceInfo

SQLITE: Final = b"SQLite format 3\0"  # how such a file begins
BATCH: Final = 20_000  # rows at a time
IDS: Final = 500  # in one query; SQLite takes 999 variables
ABSENT: Final = -1  # an id that is not there
EVENT_TABLES: Final = ("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS", "PROFILER_OVERHEAD")
OWN_TABLES: Final = (*EVENT_TABLES, "StringIds", "TARGET_INFO_", "META_DATA_", "EXPORT_META_DATA")

Table = dict[str, Ints]  # by column


@dataclass
class Export:
    database: sqlite3.Connection
    tables: frozenset[str]
    size: int  # bytes
    rows: int  # of the tables of events
    progress: Progress | None = None
    done: int = 0  # rows read


@contextmanager
def opened(path: Path, progress: Progress | None = None) -> Iterator[Export]:
    """Open an export for reading. Raises QrprofError where it is damaged, or a database of something else."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            database.text_factory = lambda text: text.decode("utf-8", "replace")
            listed = database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
            tables = frozenset(str(name) for (name,) in listed)
            if not any(name.startswith(OWN_TABLES) for name in tables):
                raise QrprofError(
                    f"{path} is an SQLite database, but no export of Nsight Systems; make one with "
                    "`nsys export --type sqlite report.nsys-rep`"
                )
            rows = sum(count(database, name) for name in tables if name.startswith(EVENT_TABLES))
            yield Export(database, tables, path.stat().st_size, max(rows, 1), progress)
    except (sqlite3.Error, UnicodeDecodeError):  # the latter where a message quotes the damage
        raise QrprofError(f"{path} is a damaged SQLite file; export or copy it again") from None
    except OSError as error:
        raise QrprofError(f"cannot read {path}: {error.strerror}; give the file of a trace") from None


def count(database: sqlite3.Connection, table: str) -> int:
    """Rows of a table, near enough for a progress bar, and at once."""
    try:
        last = database.execute(f'SELECT max(rowid) FROM "{table}"').fetchone()[0]
    except sqlite3.OperationalError:  # a view, or a table without rowid
        return 0
    return last if isinstance(last, int) else 0


def columns_of(export: Export, table: str) -> frozenset[str]:
    """The columns of a table; none where the table is missing."""
    if table not in export.tables:
        return frozenset()
    return frozenset(str(row[1]) for row in export.database.execute(f'PRAGMA table_info("{table}")'))


def fetch(export: Export, table: str, wanted: Mapping[str, int]) -> Table:
    """Integer columns of the rows that have a start and an end; one that is missing, or NULL, holds its default."""
    pieces = [piece for piece, _ in fetch_pieces(export, table, wanted)]
    none = np.zeros(0, dtype=np.int64)
    return {name: np.concatenate([none, *(piece[name] for piece in pieces)]) for name in ("start", "end", *wanted)}


def fetch_pieces(
    export: Export, table: str, wanted: Mapping[str, int], text: str | None = None
) -> Iterator[tuple[Table, Sequence[str | None]]]:
    """`fetch` by some rows at a time, with a column of texts beside them (None: NULL, or no such column)."""
    present = columns_of(export, table)
    if not {"start", "end"} <= present:
        return
    casts = [
        f'CAST(ifnull("{name}", {default}) AS INTEGER)' if name in present else str(default)
        for name, default in wanted.items()
    ]
    text_of = f'CAST("{text}" AS TEXT)' if text in present else "NULL"
    cursor = export.database.execute(
        f'SELECT CAST("start" AS INTEGER), CAST("end" AS INTEGER), {", ".join([*casts, text_of])} FROM "{table}" '
        'WHERE "start" IS NOT NULL AND "end" IS NOT NULL'
    )
    while rows := cursor.fetchmany(BATCH):
        *numbers, texts = zip(*rows, strict=True)
        columns = (np.array(column, dtype=np.int64) for column in numbers)
        yield dict(zip(("start", "end", *wanted), columns, strict=True)), texts
        export.done += len(rows)
        if export.progress:
            export.progress(export.size * min(export.done, export.rows) // export.rows, export.size)


def strings(export: Export, ids: Iterable[int]) -> dict[int, str]:
    """Texts of `StringIds`; ids that are not there are left out."""
    if not {"id", "value"} <= columns_of(export, "StringIds"):
        return {}
    found: dict[int, str] = {}
    wanted = sorted(set(ids) - {ABSENT})
    for start in range(0, len(wanted), IDS):
        some = wanted[start : start + IDS]
        query = f"SELECT id, value FROM StringIds WHERE id IN ({','.join('?' * len(some))})"
        found.update((key, str(value)) for key, value in export.database.execute(query, some) if value is not None)
    return found


# --- the machine


def product_version(export: Export) -> dict[str, str]:
    """Of Nsight Systems, as a run's record names versions."""
    (found,) = settings(export, "EXPORT_PRODUCT_VERSION") or ("",)
    return {"nsys": found} if found else {}


def base_ns(export: Export) -> int:
    """Wall time of the export's zero; 0 where it is not known, or where times were exported as wall time."""
    if settings(export, "EXPORT_PARAM_TIME_NORMALIZE") == ["true"]:
        return 0
    starts = records(export, "TARGET_INFO_SESSION_START_TIME", ("utcEpochNs", "systemClockNs"))
    wall, clock = (
        ((natural(starts[0].get(name)) or 0) for name in ("utcEpochNs", "systemClockNs")) if starts else (0, 0)
    )
    return max(wall - clock, 0)  # the machine's clock at that moment, where it is what times count from


def gpus(export: Export) -> tuple[DeviceInfo, ...]:
    found = records(export, "TARGET_INFO_GPU", ("id", "cuDevice", "name", "totalMemory"))
    return tuple(
        DeviceInfo(
            index=natural(gpu.get("cuDevice", gpu.get("id"))) or 0,
            kind="cuda",
            name=clean(str(gpu.get("name") or UNKNOWN_GPU), Masked())[:NAME_LIMIT],
            memory_bytes=natural(gpu.get("totalMemory")) or 0,
        )
        for gpu in found
    )


def settings(export: Export, key: str) -> list[str]:
    """The value of one setting of the export; of the table of settings no other is read."""
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):  # the latter until schema 2
        if {"name", "value"} <= columns_of(export, table):
            query = f'SELECT value FROM "{table}" WHERE name = ?'
            return [str(value) for (value,) in export.database.execute(query, (key,))][:1]
    return []


def records(export: Export, table: str, wanted: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a small table with those of the wanted columns that it has."""
    present = [name for name in wanted if name in columns_of(export, table)]
    if not present:
        return []
    quoted = ", ".join(f'"{name}"' for name in present)
    return [dict(zip(present, row, strict=True)) for row in export.database.execute(f'SELECT {quoted} FROM "{table}"')]
