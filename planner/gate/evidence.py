"""Verdicts in the ledger: each is written once and whole, when the gate has ended, or not at all.

A query of the sealed holdout is counted before it is made: a gate that is killed has used it all the same. One that
ended before it gives it back.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
from pydantic import TypeAdapter

from qrprof import __version__
from qrprof.planner.gate.environment import stays
from qrprof.planner.gate.records import Outcome, Verdict
from qrprof.planner.ledger import find_id
from qrprof.profiler.errors import QrprofError

QUERIES: Final = 3  # of a task's sealed holdout
VERDICT: Final = TypeAdapter(Verdict)


@dataclass(frozen=True)
class Listed:
    """What a list of verdicts shows of each."""

    id: str
    made_at: str  # ISO 8601, UTC
    task: str
    file: str  # the candidate, as it was named
    outcome: Outcome
    speedup: float | None  # over stock; None: not timed
    machine: str  # equal where speedups may be compared


@dataclass(frozen=True)
class Kept:
    """A verdict with what the ledger knows beside it."""

    verdict: Verdict
    made_at: str  # ISO 8601, UTC
    file: str  # the candidate, as it was named
    parent: str | None  # the parent candidate, as it was named; None: there was none
    version: str  # of qrprof


@dataclass(frozen=True)
class Spent:
    """What has been spent on a task so far."""

    tries: int  # candidates judged; a machine that failed judged none
    holdout_queries: int


@dataclass(frozen=True)
class Spread:
    """Percentiles of one leg's readings of one case, ns of a call."""

    n: int
    p50_ns: float
    p95_ns: float
    p99_ns: float


def spent(connection: sqlite3.Connection, task: str) -> Spent:
    tries = "SELECT count(*) FROM verdicts WHERE task = ? AND outcome != 'INFRA'"
    queries = "SELECT count(*) FROM holdout_queries WHERE task = ?"
    return Spent(*(int(connection.execute(query, (task,)).fetchone()[0]) for query in (tries, queries)))


def count_holdout(connection: sqlite3.Connection, task: str, candidate: str, most: int, now: datetime) -> int | None:
    """Count one more query of a task's holdout for a candidate (its sha256), and return how many that makes.

    None: `most` are used already; this one must not be made.
    """
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        used = spent(connection, task).holdout_queries
        if used >= most:
            return None
        connection.execute(
            "INSERT INTO holdout_queries (task, candidate, at) VALUES (?, ?, ?)", (task, candidate, stamp(now))
        )
    return used + 1


def uncount_holdout(connection: sqlite3.Connection, verdict: Verdict) -> None:
    """Take back the query that was counted for a candidate, where its verdict says that none was made."""
    if verdict.holdout_queries == 0:
        newest = "SELECT max(id) FROM holdout_queries WHERE task = ? AND candidate = ?"
        connection.execute(f"DELETE FROM holdout_queries WHERE id = ({newest})", (verdict.task, verdict.candidate))


def made(verdict: Verdict, file: str, parent: str | None, now: datetime) -> Kept:
    return Kept(verdict, stamp(now), file, parent, __version__)


def keep(connection: sqlite3.Connection, kept: Kept) -> None:
    """Write the verdict. One statement: it is there whole, or not at all."""
    verdict = kept.verdict
    connection.execute(
        "INSERT INTO verdicts (id, made_at, task, candidate, file, parent, outcome, speedup, machine, version, record)"
        " VALUES (:id, :made_at, :task, :candidate, :file, :parent, :outcome, :speedup, :machine, :version, :record)",
        {
            **{name: getattr(verdict, name) for name in ("id", "task", "candidate", "outcome")},
            **{name: getattr(kept, name) for name in ("made_at", "file", "parent", "version")},
            "speedup": verdict.speedup.mid if verdict.speedup else None,
            "machine": json.dumps(stays(verdict.environment), sort_keys=True),
            "record": json.dumps(VERDICT.dump_python(verdict)),
        },
    )


def find(connection: sqlite3.Connection, name: str) -> Kept:
    """The verdict of this id, or of the only id that begins so.

    Raises QrprofError: exit code 2 where there is not exactly one, and where its row is of no version of this schema.
    """
    id_ = find_id(connection, "verdicts", name, "verdict", "; list all with `qrprof verdict`")
    row = connection.execute("SELECT * FROM verdicts WHERE id = ?", (id_,)).fetchone()
    try:
        verdict = VERDICT.validate_python(json.loads(row["record"]))
    except ValueError as error:  # of JSON or of the record
        why = str(error).splitlines()[0]
        raise QrprofError(f"the ledger holds a broken verdict {id_} ({why}); move ledger.sqlite away") from None
    return Kept(verdict, row["made_at"], row["file"], row["parent"], row["version"])


def listed(connection: sqlite3.Connection) -> list[Listed]:
    """All verdicts, the newest first."""
    columns = "id, made_at, task, file, outcome, speedup, machine"
    return [Listed(*row) for row in connection.execute(f"SELECT {columns} FROM verdicts ORDER BY rowid DESC")]


def spread(readings: Sequence[float]) -> Spread | None:
    """None: there are no readings."""
    if not readings:
        return None
    return Spread(len(readings), *(float(value) for value in np.percentile(readings, (50, 95, 99))))


def stamp(now: datetime) -> str:
    return now.astimezone(UTC).isoformat(timespec="seconds")
