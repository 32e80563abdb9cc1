"""What a part of a run takes: its calls, its time on the device and on the host, and its shares of the ranking."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from qrprof.planner.replay.changes import Changes
from qrprof.planner.replay.covered import item_weight
from qrprof.planner.replay.model import Model
from qrprof.profiler.facts import Facts, launch_weight
from qrprof.profiler.nesting import Floats, Ints, Mask, outermost, pick
from qrprof.profiler.owners import description
from qrprof.profiler.partition import OP_IDENTITY, UNATTRIBUTED, Partition
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.steps import weight_at

OP, KERNEL, WORD = "op", "kernel", "word"
WAITS: Final = ("sync", "gap:sync", "gap:copy")  # words whose calls mostly wait, which is none of the time of a part
PER_CALL: Final = (OP, KERNEL)  # parts whose times are given by the call, or the launch


@dataclass(frozen=True)
class Subject:
    """A run that questions are asked of."""

    run: RunInfo
    model: Model
    partition: Partition

    @property
    def facts(self) -> Facts:
        return self.model.graph.facts


@dataclass(frozen=True)
class Part:
    """What a key names. Times and counts are of the mean unprofiled step as it is."""

    key: str  # in full: "aten::mm[128x256,256x512]", the kernel's whole name, "gap:data"
    label: str  # as a person types it
    kind: str  # OP, KERNEL or WORD
    change: Callable[..., Changes]  # by the factor that its time takes; of an OP also, by another one on the host
    shares: Floats  # by row of the partition, how much of it is in this
    calls: float | None  # of the op; launches of the kernel, or of the work; None: not countable
    device_ns: float
    host_ns: float  # on all threads that the replay knows, without waiting
    op: str = ""  # of an OP: its name
    shapes: tuple[str, ...] | None = None  # of an OP: of its calls, as recorded; None: of all

    @property
    def ns(self) -> float:
        """The time that a wanted time is compared with: of the device's work, or where there is none of the host."""
        return self.device_ns or self.host_ns


def count_items(facts: Facts, items: Mask) -> float:
    """Items of work of a mean step."""
    return float(item_weight(facts)[items].sum())


def count_rows(facts: Facts, rows: Ints) -> float:
    """Host rows of a mean step."""
    return float(weight_at(facts.steps.host, facts.host.start[rows]).sum())


def count_calls(facts: Facts, mask: Mask) -> float:
    """Outermost calls in `mask`, which holds all that its rows call; of those that launch work where any does."""
    outer = outermost(facts.host, mask)
    launched = np.unique(outer[facts.work.launch[launch_weight(facts) * pick(mask, facts.work.launch, False) > 0]])
    return count_rows(facts, launched if len(launched) else np.flatnonzero(outer == np.arange(len(outer))))


def count_launches(facts: Facts) -> float:
    """Launching calls of a mean step."""
    return count_rows(facts, np.unique(facts.work.launch[launch_weight(facts) > 0]))


def shares(subject: Subject, mask: Mask) -> Floats:
    """By row of the partition how much of its time belongs to the host rows of `mask` or to what they launch."""
    facts, pieces = subject.facts, subject.model.graph.segments
    if subject.partition.on_device:
        row, ns, kernel = facts.work.launch, facts.swept.ns, facts.work.name
    else:
        counted = (pieces.thread == facts.steps.thread) & (pick(facts.owners.loader, pieces.row, -1) < 0)
        row, ns = pieces.row, pieces.ns * weight_at(facts.steps.host, pieces.start) * counted
        kernel = np.full(len(row), "", dtype=object)
    kept = ns > 0
    row, ns = row[kept], ns[kept]
    owner = pick(facts.owners.row, row, -1)
    columns = description(facts.host, facts.owners, owner) | {"key": pick(facts.owners.name, owner, UNATTRIBUTED)}
    frame = pd.DataFrame(columns | {"kernel": kernel[kept], "ns": ns, "inside": ns * pick(mask, row, False)})
    sums = frame.groupby(OP_IDENTITY)[["inside", "ns"]].sum()
    wanted = pd.MultiIndex.from_frame(subject.partition.rows[OP_IDENTITY])
    found: Floats = (sums["inside"] / sums["ns"]).reindex(wanted, fill_value=0.0).to_numpy(dtype=np.float64)
    return found
