"""`.qrprof/ledger.sqlite`: one file for all that must outlive a command, its schema, and how it is opened.

What is kept in its tables is the business of the modules that own them (`predictions`, `gate/evidence`,
`optimize/journal`, `swaps/store`).
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.store import FOLDER, matching, open_store, require_no_links

T = TypeVar("T")
LEDGER: Final = "ledger.sqlite"
SHOWN: Final = 3  # ids in an error
BUSY_S: Final = 5.0  # that one process waits for another's writes

WAIT: Final = "try again once the other process has ended"
WRITABLE: Final = "make it and its folder writable"
ANEW: Final = (
    "move it away, and a new one is made, without the verdicts, predictions and accepted swaps of this one"
    " (`sqlite3 FILE .recover` may save them)"
)
ADVICE: Final = {
    sqlite3.SQLITE_BUSY: WAIT,
    sqlite3.SQLITE_LOCKED: WAIT,
    sqlite3.SQLITE_FULL: "make room",
    sqlite3.SQLITE_IOERR: "check the disk",
    sqlite3.SQLITE_READONLY: WRITABLE,
    sqlite3.SQLITE_CANTOPEN: WRITABLE,
    sqlite3.SQLITE_PERM: WRITABLE,
}

# Migration n takes a file from schema n to n + 1. Files in the field have them: append, never change.
MIGRATIONS: Final = (
    (
        """CREATE TABLE predictions (
            id INTEGER PRIMARY KEY,
            run_id TEXT NOT NULL,
            made_at TEXT NOT NULL,
            source TEXT NOT NULL,
            scenario TEXT NOT NULL,
            basis TEXT NOT NULL,
            base_ns INTEGER NOT NULL,
            low_ns INTEGER NOT NULL,
            mid_ns INTEGER,
            high_ns INTEGER NOT NULL,
            device TEXT NOT NULL,
            version TEXT NOT NULL
        )""",
        # To SQLite, one NULL is never the other.
        """CREATE UNIQUE INDEX predictions_once
            ON predictions (run_id, source, scenario, base_ns, low_ns, ifnull(mid_ns, -1), high_ns)""",
        """CREATE TABLE measurements (
            id INTEGER PRIMARY KEY,
            prediction_id INTEGER NOT NULL REFERENCES predictions (id),
            run_id TEXT NOT NULL,
            step_ns INTEGER NOT NULL,
            noise REAL,
            at TEXT NOT NULL
        )""",
    ),
    (
        # What is listed and searched by; all of the verdict is in `record`, as JSON.
        """CREATE TABLE verdicts (
            id TEXT PRIMARY KEY,
            made_at TEXT NOT NULL,
            task TEXT NOT NULL,
            candidate TEXT NOT NULL,
            file TEXT NOT NULL,
            parent TEXT,
            outcome TEXT NOT NULL,
            speedup REAL,
            machine TEXT NOT NULL,
            version TEXT NOT NULL,
            record TEXT NOT NULL
        )""",
        "CREATE INDEX verdicts_of_a_task ON verdicts (task, made_at)",
        """CREATE TABLE holdout_queries (
            id INTEGER PRIMARY KEY,
            task TEXT NOT NULL,
            candidate TEXT NOT NULL,
            at TEXT NOT NULL
        )""",
    ),
    (
        # Files of candidates, each once.
        """CREATE TABLE sources (
            sha256 TEXT PRIMARY KEY,
            text TEXT NOT NULL
        )""",
        # `record` is the start as JSON, without its source; `spent` the usage by role.
        """CREATE TABLE optimizations (
            id TEXT PRIMARY KEY,
            made_at TEXT NOT NULL,
            run_id TEXT NOT NULL,
            target TEXT NOT NULL,
            task TEXT NOT NULL,
            source TEXT NOT NULL REFERENCES sources (sha256),
            version TEXT NOT NULL,
            record TEXT NOT NULL,
            spent TEXT NOT NULL
        )""",
        # As it is known so far: `record` is replaced when a candidate is judged again.
        """CREATE TABLE candidates (
            optimization TEXT NOT NULL REFERENCES optimizations (id),
            number INTEGER NOT NULL,
            sha256 TEXT NOT NULL REFERENCES sources (sha256),
            record TEXT NOT NULL,
            PRIMARY KEY (optimization, number),
            UNIQUE (optimization, sha256)
        )""",
        # What is to be evaluated, or was. `outcome` NULL: not yet.
        """CREATE TABLE evaluations (
            optimization TEXT NOT NULL,
            number INTEGER NOT NULL,
            rung TEXT NOT NULL,
            rounds INTEGER NOT NULL,
            task TEXT NOT NULL,
            outcome TEXT,
            PRIMARY KEY (optimization, number, rung, rounds),
            FOREIGN KEY (optimization, number) REFERENCES candidates (optimization, number)
        )""",
        "CREATE INDEX evaluations_of_a_task ON evaluations (task, rung)",
        """CREATE TABLE optimizer_events (
            id INTEGER PRIMARY KEY,
            optimization TEXT NOT NULL REFERENCES optimizations (id),
            kind TEXT NOT NULL,
            record TEXT NOT NULL,
            at TEXT NOT NULL
        )""",
        "CREATE INDEX events_of_an_optimization ON optimizer_events (optimization, id)",
        """CREATE TABLE hints (
            id INTEGER PRIMARY KEY,
            optimization TEXT NOT NULL REFERENCES optimizations (id),
            text TEXT NOT NULL,
            at TEXT NOT NULL
        )""",
    ),
    (
        # `record` is the swap as it was last found, as JSON; its life is in `swap_changes`.
        """CREATE TABLE swaps (
            id TEXT PRIMARY KEY,
            record TEXT NOT NULL
        )""",
        """CREATE TABLE swap_changes (
            id INTEGER PRIMARY KEY,
            swap TEXT NOT NULL REFERENCES swaps (id),
            state TEXT NOT NULL,
            at TEXT NOT NULL,
            who TEXT NOT NULL,
            why TEXT NOT NULL,
            verdict TEXT NOT NULL,
            override TEXT NOT NULL
        )""",
        "CREATE INDEX changes_of_a_swap ON swap_changes (swap, id)",
    ),
)
SCHEMA: Final = len(MIGRATIONS)


def ledger_file(root: Path) -> Path:
    """Where the ledger of the working folder `root` is, or would be."""
    return root / FOLDER / LEDGER


@contextmanager
def opened(root: Path) -> Iterator[sqlite3.Connection]:
    """The ledger of the working folder `root`, made if needed and brought to the schema of this version.

    Outside `with connection` and BEGIN, each statement commits by itself. Raises QrprofError where the file cannot be
    written, is locked, damaged or of an unknown schema; also for what SQLite finds in the body of the `with`.
    """
    path = ledger_file(root)
    if path.parent.is_dir():
        require_no_links(path.parent)
    else:
        open_store(root)
    try:
        connection = connect(path)
    except (OSError, sqlite3.DatabaseError) as error:
        raise QrprofError(sentence(path, error)) from None
    try:
        yield connection
    except sqlite3.DatabaseError as error:
        raise QrprofError(sentence(path, error)) from None
    finally:
        connection.close()


def looked_up(root: Path, look: Callable[[sqlite3.Connection], list[T]]) -> list[T]:
    """What `look` finds in the ledger of `root`; where there is none, asking makes none. Raises what `opened` does."""
    if not ledger_file(root).exists():
        return []
    with opened(root) as connection:
        return look(connection)


def find_id(connection: sqlite3.Connection, table: str, name: str, what: str, hint: str = "") -> str:
    """The id in a table that is `name`, or the only one that begins so.

    Raises QrprofError (exit code 2) where there is not exactly one, in a sentence on `what` that ends in `hint`.
    """
    ids = [row["id"] for row in connection.execute(f"SELECT id FROM {table} ORDER BY rowid")]
    matches = matching(ids, name)
    if len(matches) == 1:
        return matches[0]
    problem = "is the beginning of several" if matches else "is unknown"
    there = ", ".join((matches or ids)[-SHOWN:]) or "none"
    raise QrprofError(f"{what} {name!r} {problem}; there are {there}{hint}", Exit.USAGE)


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys = ON")
        if schema_of(connection) != SCHEMA:
            from filelock import FileLock  # which is slow to import

            # Two that change the journal's mode at once do not wait for each other: SQLite refuses one.
            with FileLock(path.with_suffix(".lock"), timeout=BUSY_S):
                migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def schema_of(connection: sqlite3.Connection) -> int:
    """0: an empty file, or one of SQLite that is no ledger."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the file to `SCHEMA` in one transaction. Raises QrprofError where its schema is not known."""
    schema = schema_of(connection)
    if not 0 <= schema <= SCHEMA:
        raise QrprofError(
            f"{path} has schema {schema}, this qrprof reads {SCHEMA}: open it with the version that wrote it"
        )
    connection.execute("PRAGMA journal_mode = WAL")
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        for statements in MIGRATIONS[schema:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA}")


def sentence(path: Path, error: OSError | sqlite3.DatabaseError) -> str:
    """What is wrong with the file at `path`, and what a person can do about it."""
    if isinstance(error, TimeoutError):
        return f"cannot use {path}: another process makes it; {WAIT}"
    if isinstance(error, OSError):
        return f"cannot use {path}: {error.strerror}; {WRITABLE}"
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the upper bits hold details
    return f"cannot use {path}: {error}; {ADVICE.get(code, ANEW)}"
