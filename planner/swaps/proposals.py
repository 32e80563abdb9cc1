"""What could be swapped in: the included QR and adapters where a run has calls for them, and files the gate judged."""

import hashlib
import sqlite3
from dataclasses import replace
from typing import Final, Literal

from qrprof.kernels import registry
from qrprof.kernels.adapters import ADAPTERS, fitting
from qrprof.kernels.sources import OPS, own_sha256
from qrprof.kernels.swapfile import Case, Entry, Kind, Range
from qrprof.planner.gate.records import Task, TaskCase, Verdict
from qrprof.planner.predictions import device_of, latest_of
from qrprof.planner.swaps.records import Proposal
from qrprof.profiler.runinfo import RunInfo

Device = Literal["cpu", "cuda", ""]
DIGITS: Final = 8  # of a hash in a name
INCLUDED: Final = "qr"
# What the gate judges in place of the included kernels: they are no file with a candidate.
WRAPPER: Final = """\
from qrprof.kernels.qr import qr


def candidate(A, mode="reduced"):
    return qr(A, mode)
"""
JUDGED: Final = "aten::linalg_qr"  # what the wrapper replaces


# --- of a run


def of_run(connection: sqlite3.Connection, run: RunInfo) -> list[Proposal]:
    """What this library has for the calls of a run."""
    found = [of_library("included", INCLUDED, run)] if served(run) else []
    made = [*found, *(of_library("adapter", adapter.name, run) for adapter in fitting(run))]
    return [with_prediction(connection, one) for one in made]


def served(run: RunInfo) -> bool:
    """Whether an included kernel serves calls of the run where it ran."""
    return any(
        call.op.removeprefix("aten::") in OPS[INCLUDED]
        and registry.served(call.op, call.device, call.dtype, call.shape)
        for call in run.linalg
    )


def of_library(kind: Kind, name: str, run: RunInfo | None = None) -> Proposal:
    """`run`: that it was found in; None: nobody knows."""
    sha256 = own_sha256(kind, name)
    if run is None:
        return Proposal(name, kind, "", sha256, entry=Entry(name, kind, "", sha256, "", "", "", "", ()))
    device: Device = "cuda" if any(call.device == "cuda" for call in run.linalg) else "cpu"
    entry = Entry(name, kind, "", sha256, "", device, device_of(run), run.versions.get("torch", ""), ())
    return Proposal(name, kind, "", sha256, run_id=run.id, entry=entry)


def renewed(found: Proposal) -> Proposal:
    """With the source that this library has now; the same where it is the same."""
    if found.entry is None or found.kind not in ("included", "adapter"):
        return found
    sha256 = own_sha256(found.entry.kind, found.name)
    if sha256 in ("", found.sha256):
        return found
    return replace(found, sha256=sha256, entry=replace(found.entry, sha256=sha256, verdict=""))


def about(name: str, kind: str) -> str:
    """One line on what is no file."""
    if kind == "included":
        return f"the included kernels for {', '.join(OPS[name])}"
    return next((adapter.about for adapter in ADAPTERS if adapter.name == name), "")


def with_prediction(connection: sqlite3.Connection, found: Proposal) -> Proposal:
    """With what was predicted for it, if its run was ranked."""
    key = f"fix:{found.name}" if found.kind == "adapter" else JUDGED
    return replace(found, prediction=latest_of(connection, found.run_id, "rank", f"{key}=achievable"))


# --- of a verdict


def of_file(task: Task, source: str, verdict: Verdict | None) -> Proposal:
    """A candidate for the op of `task`; None: no verdict of this machine."""
    sha256 = hashlib.sha256(source.encode()).hexdigest()
    name = f"{task.op}-{sha256[:DIGITS]}"
    entry = Entry(
        name,
        "candidate",
        task.op,
        sha256,
        "",
        task.device,
        "",
        "",
        tuple(case_of(task, one) for one in task.development),
    )
    entry = judged(entry, verdict) if verdict else entry
    run_id = "" if task.origin == "built in" else task.origin
    return Proposal(name, "candidate", task.op, sha256, task.id, run_id, entry=entry)


def judged(entry: Entry, verdict: Verdict) -> Entry:
    """As it was judged: where, and with which torch."""
    where = verdict.environment
    return replace(entry, verdict=verdict.id, machine=where.get("device", ""), torch=where.get("torch", ""))


def case_of(task: Task, case: TaskCase) -> Case:
    """The calls that a development case speaks for: the holdout asked for these sizes and strides too."""
    lead = next((one.shape[0] for one in case.tensors if len(one.shape) > 1), max(case.tensors[0].shape[:1], default=0))
    least = lead if task.domain.shrink == "none" else min(task.domain.least, lead)

    def ranges(shape: tuple[int, ...]) -> tuple[Range, ...]:
        first = [(least if size == lead else size, size) for size in shape[:1]]
        return (*first, *((size, size) for size in shape[1:]))

    shapes = tuple(ranges(one.shape) for one in case.tensors)
    return Case(shapes, tuple(one.dtype for one in case.tensors), case.plain, case.layout, task.domain.strided)
