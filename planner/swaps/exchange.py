"""Swaps as one file for someone else: sources, tasks and verdicts. What comes in is proposed, and nothing more."""

import hashlib
import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from qrprof.kernels.sources import own_sha256
from qrprof.planner.gate import task_store
from qrprof.planner.gate.evidence import VERDICT
from qrprof.planner.gate.evidence import find as find_verdict
from qrprof.planner.gate.records import Task, Verdict
from qrprof.planner.swaps import proposals, store
from qrprof.planner.swaps.decide import Deciding
from qrprof.planner.swaps.records import KeptSwap, Proposal, SwapKind
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.store import replacing

SCHEMA: Final = 1
PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}")


class Incoming(NamedTuple):
    name: str
    kind: SwapKind
    sha256: str
    source: str | None  # of a candidate
    task: Task | None
    said: str  # of its verdict there


def exported(connection: sqlite3.Connection, root: Path, swaps: Sequence[KeptSwap]) -> dict[str, Any]:
    """A record of these swaps. Raises QrprofError where the source, task or verdict of one is gone."""
    return {"schema": SCHEMA, "swaps": [record(connection, root, kept.swap) for kept in swaps]}


def record(connection: sqlite3.Connection, root: Path, swap: Proposal) -> dict[str, Any]:
    candidate = swap.kind == "candidate"
    return {
        "name": swap.name,
        "kind": swap.kind,
        "sha256": swap.sha256,
        "source": store.source_of(connection, swap.sha256) if candidate else None,
        "task": asdict(task_store.load_task(root, swap.task)) if swap.task else None,
        "verdict": VERDICT.dump_python(find_verdict(connection, swap.verdict).verdict) if swap.verdict else None,
    }


def write(path: Path, made: Mapping[str, Any]) -> None:
    """Whole or not at all. Raises QrprofError where that cannot be done."""
    try:
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise QrprofError(f"cannot write {path}: {error.strerror}; name another file") from None


def read(path: Path) -> list[Incoming]:
    """Raises QrprofError where the file is not what `exported` gives, or a source is not what its hash says."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["schema"] != SCHEMA:
            raise QrprofError(f"{path} has schema {found['schema']}, this qrprof reads {SCHEMA}: export it anew")
        return [incoming(one, path) for one in found["swaps"]]
    except OSError as error:
        raise QrprofError(f"cannot read {path}: {error.strerror}; name another file") from None
    except ValidationError as error:
        raise QrprofError(f"{path} holds no exported swaps ({error.errors()[0]['msg']})") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise QrprofError(f"{path} holds no exported swaps; `qrprof swaps export FILE` writes them") from None


def incoming(one: Any, path: Path) -> Incoming:
    name, kind, sha256, source = one["name"], one["kind"], one["sha256"], one["source"]
    verdict = VERDICT.validate_python(one["verdict"]) if one["verdict"] else None
    if kind == "candidate":
        task = task_store.TASK.validate_python(one["task"])
        if not all(PLAIN_NAME.fullmatch(text) for text in (task.id, task.op)):
            raise QrprofError(f"{path}: {name!r} is judged by a task without a proper name; export it anew")
        if hashlib.sha256(source.encode()).hexdigest() != sha256:
            raise QrprofError(f"{path}: the source of {name!r} is not the one that was exported; export it anew")
        unnumbered = replace(task, id=task.id.rpartition("-")[0] or task.id)  # its hash is added when it is kept
        return Incoming(name, kind, sha256, source, unnumbered, said(verdict))
    if kind not in ("included", "adapter") or own_sha256(kind, name) != sha256:
        raise QrprofError(f"{path}: {name!r} is part of another version of qrprof; install the one that exported it")
    return Incoming(name, kind, sha256, None, None, said(verdict))


def said(verdict: Verdict | None) -> str:
    """What the verdict was where it was found, which proves nothing here."""
    if verdict is None:
        return "no verdict came with it"
    speed = f", {verdict.speedup.mid:.2f}x" if verdict.speedup else ""
    device, torch = (verdict.environment.get(name, "unknown") for name in ("device", "torch"))
    return f"its verdict there: {verdict.outcome}{speed} (device {device}, torch {torch})"


def propose(connection: sqlite3.Connection, by: Deciding, one: Incoming, origin: str) -> KeptSwap:
    """Keep it, its task and its source, as proposed."""
    if one.kind == "candidate" and one.source is not None and one.task is not None:
        found = proposals.of_file(task_store.keep(by.root, one.task), one.source, None)
    else:
        assert one.kind in ("included", "adapter")
        found = proposals.of_library(one.kind, one.name)
    return store.propose(connection, found, one.source, by.change("proposed", f"imported from {origin}; {one.said}"))
