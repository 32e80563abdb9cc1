"""Where the step goes: every ns of the mean step belongs to exactly one row.

With device work in the recorded steps, their device windows are swept: a busy ns belongs to the op that
launched what runs (`owners`), split evenly where several streams are busy (`overlap`); an idle ns
belongs to one cause (`idle`). Without, the host windows of the steps' thread are swept: a ns belongs to the op
that owns the innermost row; inside a DataLoader's `__next__` it is data loading, outside all ops host work, of which
`pauses` tells the place.
`calibrate` turns the pieces of time that rows are made of into those of the unprofiled step.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from qrprof.profiler.calibrate import Calibration, calibrate, calibrate_device, timed
from qrprof.profiler.coverage import Coverage, cover
from qrprof.profiler.facts import Facts, find_facts, launch_weight
from qrprof.profiler.idle import AWAY, DATA, LAUNCH, Pieces, cut, gap_rows, unseen, wait_calls
from qrprof.profiler.nesting import Floats, Ints, pick, row_at, segments
from qrprof.profiler.owners import description
from qrprof.profiler.pauses import tell_pauses
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.steps import weight_at
from qrprof.profiler.sums import Columns, add_up, in_order, together
from qrprof.profiler.trace import Trace

UNATTRIBUTED: Final = "unattributed"  # device work without a launch in the file
CALL_IDENTITY: Final = ["key", "shapes", "dtypes", "phase", "where"]
OP_IDENTITY: Final = [*CALL_IDENTITY, "kernel"]
GAP_IDENTITY: Final = ["key", "op", "phase", "where"]
IDENTITY: Final = ["key", "kind", "op", "shapes", "dtypes", "phase", "where", "kernel"]


@dataclass(frozen=True)
class Partition:
    """Times are ns of a mean step.

    `rows`: a row for each (key, op, shapes, dtypes, phase, where, kernel), largest first, with the columns
    key ("aten::mm", "gap:sync", "unattributed"), kind ("op" or "gap"), op (of a gap: whom it is blamed on), shapes,
    dtypes, phase, where, kernel, ns (calibrated), recorded_ns, launches (device work items; 0 on a CPU and for
    gaps) and overlap (it shared its time with other streams). `recorded_ns` sums to that of the partition,
    always; `ns` sums to `step_ns` unless that is None or the partition is withheld: then ns is as recorded.

    `calls`: key, shapes, dtypes, phase, where, calls: calls of the owning op, or of the waits of gap:data,
    gap:sync, gap:copy and gap:alloc, per mean step.
    """

    rows: pd.DataFrame
    calls: pd.DataFrame
    step_ns: float | None  # the mean unprofiled step; None: never measured
    recorded_ns: float  # the mean recorded step
    busy_ns: float  # of it, when a device was busy; 0 on a CPU
    factor: float | None  # of the time that was scaled, together
    on_device: bool
    coverage: Coverage
    withheld: str | None  # why times must not be shown as shares of the step


def partition(trace: Trace, run: RunInfo) -> Partition:
    """Divide the mean step of a recorded run. Raises QrprofError where the trace is empty."""
    return divide(find_facts(trace, run), run)


def divide(facts: Facts, run: RunInfo) -> Partition:
    """The same of a trace whose facts are known."""
    coverage = cover(facts)
    busy_ns = float(facts.swept.ns.sum())
    on_device = busy_ns > 0
    believed = None if coverage.abstains else run
    columns, calibration = _device_rows(facts, believed) if on_device else _host_rows(facts, believed)
    rows = pd.DataFrame(columns).take(np.argsort(-columns["ns"], kind="stable"))
    return Partition(
        rows=rows[[*IDENTITY, "ns", "recorded_ns", "launches", "overlap"]].reset_index(drop=True),
        calls=pd.DataFrame(_device_calls(facts) if on_device else _host_calls(facts)),
        step_ns=run.step_ns(),
        recorded_ns=float(rows["recorded_ns"].sum()),
        busy_ns=busy_ns,
        factor=calibration.factor,
        on_device=on_device,
        coverage=coverage,
        withheld=coverage.abstains or calibration.withheld,
    )


def _device_rows(facts: Facts, run: RunInfo | None) -> tuple[Columns, Calibration]:
    """Rows of the device windows, from items of work and pieces of idle time."""
    host, work, steps, owners, swept = facts.host, facts.work, facts.steps, facts.owners, facts.swept
    times = calibrate_device(facts, run)
    launched = launch_weight(facts)
    launches = np.where(work.launch >= 0, launched, weight_at(steps.device, work.start))
    kept = (swept.ns > 0) | (launches > 0)
    busy = _describe(facts, pick(owners.row, work.launch, -1)[kept]) | {
        "kernel": work.name[kept],
        "ns": times.busy_ns[kept],
        "recorded_ns": swept.ns[kept],
        "launches": launches[kept],
        "overlap": swept.overlap[kept],
    }
    queued = _gaps(facts, times.queued, times.queued_ns)
    starved = _gaps(facts, unseen(host, times.starved), times.starved_ns)
    return _rows(busy, together(queued, starved)), times.calibration


def _host_rows(facts: Facts, run: RunInfo | None) -> tuple[Columns, Calibration]:
    """Rows of the steps' thread, from stretches in which its innermost row does not change."""
    host, steps, owners = facts.host, facts.steps, facts.owners
    line = segments(host, steps.thread)
    start, end = cut(steps.host, line.start)
    weight = weight_at(steps.host, start)
    recorded = (end - start) * weight
    row = row_at(line, start)
    loading = pick(owners.loader, row, -1) >= 0
    owner = pick(_called(facts), pick(owners.row, row, -1), -1)
    in_op = (owner >= 0) & ~loading
    ops = _describe(facts, owner[in_op])
    known = np.full(len(row), np.nan)
    known[in_op] = timed(ops, recorded[in_op], run)
    found = calibrate(recorded, weight, known, run, on_device=False)
    busy = ops | {"ns": found.ns[in_op], "recorded_ns": recorded[in_op]}
    cause = np.where(loading, DATA, AWAY)[~in_op]
    away = Pieces(start[~in_op], recorded[~in_op], cause, row[~in_op])
    gaps = tell_pauses(facts, away, (end - start)[~in_op], _gaps(facts, away, found.ns[~in_op]))
    return _rows(_filled(busy, kernel="", launches=0.0, overlap=0.0), gaps), found


def _gaps(facts: Facts, pieces: Pieces, ns: Floats) -> Columns:
    """Pieces of idle time with their calibrated `ns`."""
    return gap_rows(facts.host, facts.owners, pieces) | {"ns": ns, "recorded_ns": pieces.ns}


def _rows(busy: Columns, idle: Columns) -> Columns:
    """What is busy and what is idle in one table, added up and sorted by its identity."""
    ops = add_up(busy, OP_IDENTITY)
    gaps = _filled(add_up(idle, GAP_IDENTITY), shapes="", dtypes="", kernel="", launches=0.0, overlap=0.0)
    rows = together(_filled(ops, kind="op") | {"op": ops["key"]}, _filled(gaps, kind="gap"))
    rows["overlap"] = rows["overlap"] > 0
    return in_order(rows, IDENTITY)


def _device_calls(facts: Facts) -> Columns:
    """Calls of the ops that launched work in the steps, and waits."""
    host, work = facts.host, facts.work
    weight = launch_weight(facts)
    owner = facts.owners.row[work.launch[weight > 0]]
    rows, first = np.unique(owner, return_index=True)
    waits = wait_calls(host, facts.owners, facts.causes, facts.steps.host, facts.causes.held < LAUNCH)
    return _calls(_describe(facts, rows) | {"calls": weight[weight > 0][first]}, waits)


def _host_calls(facts: Facts) -> Columns:
    """Calls of the ops on the steps' thread, and loader waits."""
    host, owners, windows = facts.host, facts.owners, facts.steps.host
    here = host.track == facts.steps.thread
    weight = weight_at(windows, host.start)
    own = (owners.row == np.arange(len(here))) & (_called(facts) == np.arange(len(here)))
    rows = np.flatnonzero(here & own & (owners.loader < 0) & (weight > 0))
    waits = wait_calls(host, owners, facts.causes, windows, here & (facts.causes.held == DATA))
    return _calls(_describe(facts, rows) | {"calls": weight[rows]}, waits)


def _called(facts: Facts) -> Ints:
    """For each host row itself, or of an overload that calls its op by another one the call within: the two are one."""
    host, owners = facts.host, facts.owners
    rows = np.arange(len(host.parent))
    name = host.rows["name"].cat.codes.to_numpy()
    inner = np.flatnonzero((owners.row == rows) & (name == pick(name, host.parent, -1)))
    rows[host.parent[inner]] = inner
    while (deeper := rows[rows] != rows).any():
        rows[deeper] = rows[rows[deeper]]
    return rows


def _calls(calls: Columns, waits: Columns) -> Columns:
    return in_order(add_up(together(calls, _filled(waits, shapes="", dtypes="")), CALL_IDENTITY), CALL_IDENTITY)


def _filled(columns: Columns, **constants: str | float) -> Columns:
    """The columns and others in which all rows have the same value."""
    rows = len(columns["key"])
    return columns | {
        name: np.full(rows, value, dtype=object if isinstance(value, str) else np.float64)
        for name, value in constants.items()
    }


def _describe(facts: Facts, owner: Ints) -> Columns:
    """The identity columns of owning rows; -1 is work without a launch."""
    columns = description(facts.host, facts.owners, owner)
    return columns | {"key": pick(facts.owners.name, owner, UNATTRIBUTED)}
