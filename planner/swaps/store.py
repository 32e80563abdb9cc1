"""Swaps in the ledger: what each is, and every change of its state, with who, when and why."""

import hashlib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, astuple, replace
from datetime import UTC, datetime
from typing import Final

from pydantic import TypeAdapter, ValidationError

from qrprof.planner.ledger import find_id
from qrprof.planner.swaps.records import Change, KeptSwap, Proposal, State
from qrprof.profiler.errors import QrprofError

PROPOSAL: Final = TypeAdapter(Proposal)
CHANGE: Final = TypeAdapter(Change)
COLUMNS: Final = "state, at, who, why, verdict, override"
LIST_THEM: Final = "; list all with `qrprof swaps list`"


def propose(connection: sqlite3.Connection, found: Proposal, source: str | None, change: Change) -> KeptSwap:
    """Keep what was found, with its source text, and return it as it stands now.

    Nothing changes where the same is known already, or a person has accepted it.
    """
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        before = [one for one in listed(connection) if one.name == found.name]
        if source is not None:
            keep_source(connection, source)
        if not before:
            connection.execute("INSERT INTO swaps (id, record) VALUES (?, ?)", (found.name, written(found)))
            append(connection, found.name, change)
        elif news(before[0], found, change):
            connection.execute("UPDATE swaps SET record = ? WHERE id = ?", (written(found), found.name))
            append(connection, found.name, change)
    return find(connection, found.name)


def news(known: KeptSwap, found: Proposal, change: Change) -> bool:
    """A verdict that was not known, or something else to be judged; nothing is news of what runs.

    A patch is found for a file as it is: a stale one that is found again fits again.
    """
    if known.state == "accepted":
        return False
    if known.state in ("stale", "undone") and found.patch:
        return True
    if found.verdict:
        return found.verdict not in {one.verdict for one in known.changes}
    return known.state != "rejected" and bare(known.swap) != bare(found)


def bare(found: Proposal) -> tuple[object, ...]:
    return found.sha256, found.patch, found.entry and replace(found.entry, verdict="")


def change(connection: sqlite3.Connection, changes: Iterable[tuple[KeptSwap, Change]]) -> None:
    """Append a change to each of the swaps, and keep them as they are given; all or none.

    Raises QrprofError where the state of one has changed since it was read.
    """
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        for kept, made in changes:
            require_unchanged(connection, kept)
            connection.execute("UPDATE swaps SET record = ? WHERE id = ?", (written(kept.swap), kept.name))
            append(connection, kept.name, made)


def require_unchanged(connection: sqlite3.Connection, kept: KeptSwap) -> None:
    """Raises QrprofError where the state of the swap has changed since it was read."""
    now = find(connection, kept.name)
    if now.changes != kept.changes:
        look = f"look at it with `qrprof swaps show {kept.name}`"
        raise QrprofError(f"another qrprof has decided on swap {kept.name}, it is {now.state} now; {look}")


def append(connection: sqlite3.Connection, name: str, made: Change) -> None:
    connection.execute(
        f"INSERT INTO swap_changes (swap, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", (name, *astuple(made))
    )


def listed(connection: sqlite3.Connection) -> list[KeptSwap]:
    """All, in the order in which they were first found. Raises QrprofError where a row is of no known version."""
    changes: dict[str, list[Change]] = defaultdict(list)
    try:
        for row in connection.execute(f"SELECT swap, {COLUMNS} FROM swap_changes ORDER BY id"):
            name, *values = tuple(row)
            changes[name].append(CHANGE.validate_python(dict(zip(COLUMNS.split(", "), values, strict=True))))
        rows = connection.execute("SELECT record FROM swaps ORDER BY rowid")
        found = [PROPOSAL.validate_json(row["record"]) for row in rows]
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        raise QrprofError(f"the ledger holds a broken swap ({why}); move ledger.sqlite away") from None
    return [KeptSwap(one, tuple(changes[one.name])) for one in found if changes[one.name]]


def find(connection: sqlite3.Connection, name: str) -> KeptSwap:
    """The swap of this name, or the only one whose name begins so. Raises QrprofError (exit code 2)."""
    whole = find_id(connection, "swaps", name, "swap", LIST_THEM)
    return next(one for one in listed(connection) if one.name == whole)


def keep_source(connection: sqlite3.Connection, source: str) -> None:
    sha256 = hashlib.sha256(source.encode()).hexdigest()
    connection.execute("INSERT OR IGNORE INTO sources (sha256, text) VALUES (?, ?)", (sha256, source))


def source_of(connection: sqlite3.Connection, sha256: str) -> str:
    """Text that was kept. Raises QrprofError where it is not there, or is not what its hash says."""
    row = connection.execute("SELECT text FROM sources WHERE sha256 = ?", (sha256,)).fetchone()
    if row is None or hashlib.sha256(row["text"].encode()).hexdigest() != sha256:
        raise QrprofError(f"the ledger does not hold the source {sha256[:12]} as it was; judge the file anew")
    return str(row["text"])


def written(found: Proposal) -> str:
    """JSON, in which an infinity stays one: pydantic would write null."""
    return json.dumps(asdict(found))


def changed(state: State, who: str, why: str, now: datetime, verdict: str = "", override: str = "") -> Change:
    return Change(state, now.astimezone(UTC).isoformat(timespec="seconds"), who, why, verdict, override)
