"""Optimizations in the ledger: what was asked for, every candidate with its file, and what happened, in order.

What belongs together is written in one transaction, so that a process that is killed leaves a whole state behind, from
which another goes on.
"""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from pydantic import TypeAdapter

from qrprof import __version__
from qrprof.planner.gate import evidence
from qrprof.planner.gate.evidence import Kept
from qrprof.planner.gate.records import Interval, Outcome, Task
from qrprof.planner.ledger import find_id, opened
from qrprof.planner.optimize.budget import Spent
from qrprof.planner.optimize.records import Candidate, Event, Rung, Start
from qrprof.profiler.errors import Exit, QrprofError

T = TypeVar("T")
START: Final = TypeAdapter(Start)
CANDIDATE: Final = TypeAdapter(Candidate)
SPENT: Final[TypeAdapter[Spent]] = TypeAdapter(Spent)
LIST: Final = """
    SELECT id, made_at, run_id, target, task,
        (SELECT count(DISTINCT number) FROM evaluations WHERE optimization = o.id AND outcome IS NOT NULL)
            AS candidates,
        (SELECT record FROM optimizer_events WHERE optimization = o.id AND kind = 'ended' ORDER BY id DESC LIMIT 1)
            AS ended
    FROM optimizations AS o ORDER BY rowid DESC"""
CANDIDATES: Final = """
    SELECT candidates.record, sources.text FROM candidates JOIN sources USING (sha256)
    WHERE optimization = ? AND number IN (
        SELECT number FROM evaluations WHERE optimization = candidates.optimization AND outcome IS NOT NULL
    ) ORDER BY number"""
WAITING: Final = """
    SELECT candidates.record, sources.text, rung, rounds
    FROM evaluations JOIN candidates USING (optimization, number) JOIN sources USING (sha256)
    WHERE optimization = ? AND outcome IS NULL ORDER BY evaluations.rowid"""


@dataclass(frozen=True)
class Waiting:
    """An evaluation that is to be made."""

    candidate: Candidate
    rung: Rung
    rounds: int  # of a preview; 0 of the other rungs


@dataclass(frozen=True)
class Judged:
    """What came of one."""

    candidate: Candidate  # as it is known now
    rung: Rung
    rounds: int
    outcome: Outcome  # of this evaluation
    verdict: Kept | None  # None of a preview, and of what was lost
    queried: bool = False  # a query of the holdout was counted for it


@dataclass(frozen=True)
class Listed:
    """What a list of optimizations shows of each."""

    id: str
    made_at: str  # ISO 8601, UTC
    run_id: str
    target: str
    task: str  # id
    candidates: int  # that were judged
    ended: Mapping[str, object] | None  # record of the last event "ended"; None: it runs, or was stopped


class Journal:
    """`connect` opens the ledger, as `ledger.opened` does, whose errors all methods raise; `now` tells the time."""

    def __init__(
        self, connect: Callable[[], AbstractContextManager[sqlite3.Connection]], now: Callable[[], datetime]
    ) -> None:
        self.connect = connect
        self.now = now

    @contextmanager
    def written(self) -> Iterator[sqlite3.Connection]:
        """All that is written inside, or nothing."""
        with self.connect() as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    def stamp(self) -> str:
        return evidence.stamp(self.now())

    # --- optimizations

    def begin(self, start: Start) -> Start:
        """Keep what is asked for, under its id or, where that is taken, under one that ends in -2, -3, ..."""
        with self.written() as connection:
            taken = {row["id"] for row in connection.execute("SELECT id FROM optimizations")}
            names = [start.id, *(f"{start.id}-{number}" for number in range(2, len(taken) + 2))]
            kept = replace(start, id=next(name for name in names if name not in taken))
            source = keep_source(connection, kept.source)
            connection.execute(
                "INSERT INTO optimizations (id, made_at, run_id, target, task, source, version, record, spent)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, '{}')",
                (kept.id, self.stamp(), kept.run_id, kept.target, kept.task.id, source, __version__, start_json(kept)),
            )
        return kept

    def start(self, name: str) -> Start:
        """What was asked for under this id, or under the only one that begins so. Raises QrprofError (exit code 2)."""
        with self.connect() as connection:
            id_ = find_id(connection, "optimizations", name, "optimization", "; list all with `qrprof history`")
            query = "SELECT record, text FROM optimizations JOIN sources ON sha256 = source WHERE id = ?"
            row = connection.execute(query, (id_,)).fetchone()
        return replace(read(START, row["record"]), source=row["text"])

    def optimizations(self) -> list[Listed]:
        """All, the newest first."""
        with self.connect() as connection:
            rows = [dict(row) for row in connection.execute(LIST)]
        return [Listed(**row | {"ended": json.loads(row["ended"]) if row["ended"] else None}) for row in rows]

    def spent(self, optimization: str) -> Spent:
        """By role, as it was last kept: what a `budget.Meter` is told of before."""
        with self.connect() as connection:
            query = "SELECT spent FROM optimizations WHERE id = ?"
            return read(SPENT, connection.execute(query, (optimization,)).fetchone()["spent"])

    def keep_spent(self, optimization: str, spent: Spent) -> None:
        with self.written() as connection:
            text = written(SPENT, spent)
            connection.execute("UPDATE optimizations SET spent = ? WHERE id = ?", (text, optimization))

    @contextmanager
    def alone(self, optimization: str) -> Iterator[None]:
        """Inside, no other process goes on with this optimization. Raises QrprofError (exit code 2) where one does."""
        from filelock import FileLock, Timeout  # which is slow to import

        with self.connect() as connection:
            ledger = Path(connection.execute("PRAGMA database_list").fetchone()["file"])
        # It may be let go by another thread than took it.
        lock = FileLock(ledger.with_name(f"{optimization}.lock"), timeout=0, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            raise QrprofError(
                f"{optimization} goes on in another process: wait for it, or end it", Exit.USAGE
            ) from None
        try:
            yield
        finally:
            lock.release()

    # --- candidates

    def await_all(self, start: Start, waiting: Sequence[Waiting], events: Sequence[Event]) -> None:
        """Keep candidates that are to be evaluated, and the events of that. One that is known is evaluated again."""
        with self.written() as connection:
            for one in waiting:
                keep_candidate(connection, start.id, one.candidate)
                connection.execute(
                    "INSERT OR REPLACE INTO evaluations (optimization, number, rung, rounds, task)"
                    " VALUES (?, ?, ?, ?, ?)",
                    (start.id, one.candidate.number, one.rung, one.rounds, start.task.id),
                )
            keep_events(connection, start.id, events)

    def judge(self, start: Start, judged: Judged, events: Sequence[Event]) -> None:
        """Keep what came of an evaluation, and the events of that."""
        with self.written() as connection:
            keep_candidate(connection, start.id, judged.candidate)
            connection.execute(
                "UPDATE evaluations SET outcome = ? WHERE optimization = ? AND number = ? AND rung = ? AND rounds = ?",
                (judged.outcome, start.id, judged.candidate.number, judged.rung, judged.rounds),
            )
            if judged.verdict is not None:
                evidence.keep(connection, judged.verdict)
                if judged.queried:
                    evidence.uncount_holdout(connection, judged.verdict.verdict)
            keep_events(connection, start.id, events)

    def candidates(self, optimization: str) -> list[Candidate]:
        """Those that were judged, oldest first."""
        with self.connect() as connection:
            return [candidate_in(row) for row in connection.execute(CANDIDATES, (optimization,))]

    def waiting(self, optimization: str) -> list[Waiting]:
        """What is still to be evaluated, oldest first."""
        with self.connect() as connection:
            rows = connection.execute(WAITING, (optimization,)).fetchall()
        return [Waiting(candidate_in(row), row["rung"], row["rounds"]) for row in rows]

    def tries(self, task: Task) -> int:
        """Evaluations of the task so far, by all optimizations and by `qrprof gate`, where no machine failed."""
        previews = (
            "SELECT count(*) FROM evaluations WHERE task = ? AND rung = 'preview'"
            " AND outcome IS NOT NULL AND outcome != 'INFRA'"
        )
        with self.connect() as connection:
            found = int(connection.execute(previews, (task.id,)).fetchone()[0])
            return found + evidence.spent(connection, task.id).tries

    def count_holdout(self, task: Task, candidate: Candidate, most: int) -> int | None:
        """See `evidence.count_holdout`."""
        with self.connect() as connection:
            return evidence.count_holdout(connection, task.id, candidate.sha256, most, self.now())

    def queries(self, task: Task) -> int:
        """Of the task's holdout, used so far."""
        with self.connect() as connection:
            return evidence.spent(connection, task.id).holdout_queries

    def over_stock(self, verdict: str) -> Interval | None:
        """The speed over the stock op that a verdict found; None: it came to none."""
        with self.connect() as connection:
            return evidence.find(connection, verdict).verdict.speedup

    # --- events and hints

    def add_events(self, optimization: str, events: Sequence[Event]) -> None:
        with self.written() as connection:
            keep_events(connection, optimization, events)

    def events(self, optimization: str, seen: int = 0) -> list[Event]:
        """All but the first `seen`, oldest first."""
        query = "SELECT kind, record, at FROM optimizer_events WHERE optimization = ? ORDER BY id LIMIT -1 OFFSET ?"
        with self.connect() as connection:
            rows = connection.execute(query, (optimization, seen)).fetchall()
        return [Event(row["kind"], json.loads(row["record"]), row["at"]) for row in rows]

    def add_hint(self, optimization: str, text: str) -> None:
        """Of a person, for the next proposals; what looks like a secret is masked."""
        from qrprof.profiler.readers.texts import mask  # which imports pandas

        with self.written() as connection:
            values = (optimization, mask(text), self.stamp())
            connection.execute("INSERT INTO hints (optimization, text, at) VALUES (?, ?, ?)", values)

    def hints(self, optimization: str) -> list[str]:
        """All, oldest first."""
        query = "SELECT text FROM hints WHERE optimization = ? ORDER BY id"
        with self.connect() as connection:
            return [row["text"] for row in connection.execute(query, (optimization,))]


def journal_of(root: Path) -> Journal:
    """Of the ledger of the working folder `root`, which is made with the first thing that is written or asked."""
    return Journal(partial(opened, root), lambda: datetime.now(UTC))


# --- rows


def hash_of(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def keep_source(connection: sqlite3.Connection, source: str) -> str:
    sha256 = hash_of(source)
    connection.execute("INSERT OR IGNORE INTO sources (sha256, text) VALUES (?, ?)", (sha256, source))
    return sha256


def keep_candidate(connection: sqlite3.Connection, optimization: str, candidate: Candidate) -> None:
    sha256 = keep_source(connection, candidate.proposal.source)
    bare = replace(candidate, proposal=replace(candidate.proposal, source=""))
    connection.execute(
        "INSERT INTO candidates (optimization, number, sha256, record) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (optimization, number) DO UPDATE SET record = excluded.record",
        (optimization, candidate.number, sha256, written(CANDIDATE, bare)),
    )


def candidate_in(row: sqlite3.Row) -> Candidate:
    candidate = read(CANDIDATE, row["record"])
    return replace(candidate, proposal=replace(candidate.proposal, source=row["text"]))


def keep_events(connection: sqlite3.Connection, optimization: str, events: Sequence[Event]) -> None:
    connection.executemany(
        "INSERT INTO optimizer_events (optimization, kind, record, at) VALUES (?, ?, ?, ?)",
        [(optimization, event.kind, json.dumps(event.record), event.at) for event in events],
    )


def start_json(start: Start) -> str:
    return written(START, replace(start, source=""))


def written(kind: TypeAdapter[T], value: T) -> str:
    """JSON, in which an infinity stays one: pydantic would write null."""
    return json.dumps(kind.dump_python(value))


def read(kind: TypeAdapter[T], text: str) -> T:
    """Raises QrprofError where a row holds what no version of this schema wrote."""
    try:
        return kind.validate_python(json.loads(text))
    except ValueError as error:  # of JSON or of the record
        why = str(error).splitlines()[0]
        raise QrprofError(
            f"the ledger holds a broken row of an optimization ({why}); move ledger.sqlite away"
        ) from None
