"""A softmax candidate that the gate has passed, in a working folder of its own."""

import hashlib
import importlib.metadata
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from gate_cases import PASSED

from qrprof.kernels.loading import load
from qrprof.kernels.swapfile import Case, Entry
from qrprof.planner.gate import evidence, task_store
from qrprof.planner.gate.records import ArgSpec, Domain, Task, TaskCase, Tolerance, Verdict
from qrprof.planner.ledger import opened
from qrprof.planner.swaps import decide, proposals, store
from qrprof.planner.swaps.decide import Deciding
from qrprof.planner.swaps.publish import swaps_file
from qrprof.planner.swaps.records import KeptSwap
from qrprof.profiler.devices import cpu_name

NOW = datetime(2026, 2, 1, 9, 0, tzinfo=UTC)
SOURCE = """\
def candidate(self, dim, half_to_float):
    weights = (self - self.amax(dim, keepdim=True)).exp_()
    return weights.div_(weights.sum(dim, keepdim=True))
"""
TASK = Task(
    "softmax",
    "_softmax",
    "cpu",
    (TaskCase("8x16", 1.0, (ArgSpec((8, 16), "float32"),), (-1, False)),),
    Domain(),
    "relative",
    Tolerance(),
    "built in",
    ("self", "dim", "half_to_float"),
)
CASE = Case((((1, 8), (16, 16)),), ("float32",), (-1, False), "", True)
ENTRY = Entry("_softmax-0a1b2c3d", "candidate", "_softmax", "ab" * 32, "one", "cpu", "A CPU", "2.13.0", (CASE,))


def by(root: Path) -> Deciding:
    return Deciding(root, "ada", NOW)


def verdict_on(task: Task, source: str, **changes: Any) -> Verdict:
    """A pass, found on this machine with this torch."""
    sha256 = hashlib.sha256(source.encode()).hexdigest()
    where = {"device": cpu_name(), "torch": importlib.metadata.version("torch")}
    made: dict[str, Any] = {"id": f"v-{sha256[:8]}", "task": task.id, "candidate": sha256, "environment": where}
    return replace(PASSED, **made | changes)


def verified(root: Path, source: str = SOURCE, **changes: Any) -> KeptSwap:
    """Kept in the ledger of `root`; `changes` of the verdict."""
    task = task_store.keep(root, TASK)
    verdict = verdict_on(task, source, **changes)
    with opened(root) as connection:
        evidence.keep(connection, evidence.made(verdict, "fast.py", None, NOW))
        found = proposals.of_file(task, source, verdict)
        return store.propose(connection, found, source, by(root).change("verified", "the gate: PASS", verdict.id))


def now(root: Path, name: str) -> KeptSwap:
    with opened(root) as connection:
        return store.find(connection, name)


def accepted(root: Path, source: str = SOURCE) -> KeptSwap:
    kept = verified(root, source)
    decide.accept(by(root), kept, source, "the gate passed it")
    return now(root, kept.name)


def loaded(root: Path) -> list[str]:
    """Names of what a program in this folder would run."""
    return [swap.name for swap in load(swaps_file(root)).swaps]


def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, beside a configuration and a cache of its own."""
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    return tmp_path / "work"
