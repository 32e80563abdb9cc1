"""Where the step goes: every ns of the mean step belongs to exactly one row.

With device work in the recorded steps, their device windows are swept: a busy ns belongs to the op that
launched what runs (`owners`), split evenly where several streams are busy (`overlap`); an idle ns
belongs to one cause (`idle`). Without, the host windows of the steps' thread are swept: a ns belongs to the op
that owns the innermost row; inside a DataLoader's `__next__` it is data loading, outside all ops host work.
`calibrate` then scales the rows to the unprofiled step.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from qrprof.profiler.calibrate import Calibration, calibrate
from qrprof.profiler.coverage import Coverage, cover
from qrprof.profiler.facts import Facts, feeding_threads, find_facts, launch_weight
from qrprof.profiler.idle import AWAY, DATA, LAUNCH, Pieces, blame, cut, gap_rows, unseen, wait_calls
from qrprof.profiler.nesting import Ints, pick, row_at, segments
from qrprof.profiler.owners import describe
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.steps import weight_at
from qrprof.profiler.sweep import Sweep
from qrprof.profiler.trace import Trace

UNATTRIBUTED: Final = "unattributed"  # device work without a launch in the file
CALL_IDENTITY: Final = ["key", "shapes", "dtypes", "phase", "where"]
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
    factor: float | None  # of the rows that were scaled
    on_device: bool
    coverage: Coverage
    withheld: str | None  # why times must not be shown as shares of the step


def partition(trace: Trace, run: RunInfo) -> Partition:
    """Divide the mean step of a recorded run. Raises QrprofError where the trace is empty."""
    facts = find_facts(trace, run)
    coverage = cover(facts)
    swept = facts.swept
    on_device = bool((swept.ns > 0).any())
    rows = _device_rows(facts, swept) if on_device else _host_rows(facts)
    calls = _device_calls(facts) if on_device else _host_calls(facts)
    rows = rows.groupby(IDENTITY, sort=False, as_index=False).agg(
        recorded_ns=("ns", "sum"), launches=("launches", "sum"), overlap=("overlap", "any")
    )
    calibration = calibrate(rows, run, on_device)
    if coverage.abstains:
        calibration = Calibration(rows["recorded_ns"].to_numpy(), None, coverage.abstains)
    rows = rows.assign(ns=calibration.ns).sort_values(["ns", *IDENTITY], ascending=[False] + [True] * len(IDENTITY))
    return Partition(
        rows=rows[[*IDENTITY, "ns", "recorded_ns", "launches", "overlap"]].reset_index(drop=True),
        calls=calls.groupby(CALL_IDENTITY, as_index=False)[["calls"]].sum(),
        step_ns=run.step_ns(),
        recorded_ns=float(rows["recorded_ns"].sum()),
        busy_ns=float(swept.ns.sum()) if on_device else 0.0,
        factor=calibration.factor,
        on_device=on_device,
        coverage=coverage,
        withheld=calibration.withheld,
    )


def _device_rows(facts: Facts, swept: Sweep) -> pd.DataFrame:
    """Unsummed rows of the device windows: one an item of work or a piece of idle time."""
    host, work, steps, owners = facts.host, facts.work, facts.steps, facts.owners
    launched = launch_weight(facts)
    launches = np.where(work.launch >= 0, launched, weight_at(steps.device, work.start))
    kept = (swept.ns > 0) | (launches > 0)
    busy = _describe(facts, pick(owners.row, work.launch, -1)[kept]).assign(
        kernel=work.name[kept], ns=swept.ns[kept], launches=launches[kept], overlap=swept.overlap[kept]
    )
    queued, starved = blame(host, facts.causes, work, swept.idle, feeding_threads(facts))
    return _joined(busy, gap_rows(host, owners, queued), gap_rows(host, owners, unseen(host, starved)))


def _host_rows(facts: Facts) -> pd.DataFrame:
    """Unsummed rows of the steps' thread: one a stretch in which its innermost row does not change."""
    host, steps, owners = facts.host, facts.steps, facts.owners
    line = segments(host, steps.thread)
    start, end = cut(steps.host, line.start)
    ns = (end - start) * weight_at(steps.host, start)
    row = row_at(line, start)
    loading = pick(owners.loader, row, -1) >= 0
    owner = pick(owners.row, row, -1)
    in_op = (owner >= 0) & ~loading
    busy = _describe(facts, owner[in_op]).assign(kernel="", ns=ns[in_op], launches=0.0, overlap=False)
    cause = np.where(loading, DATA, AWAY)[~in_op]
    gaps = gap_rows(host, owners, Pieces(start[~in_op], ns[~in_op], cause, row[~in_op]))
    return _joined(busy, gaps)


def _joined(busy: pd.DataFrame, *gaps: pd.DataFrame) -> pd.DataFrame:
    blank: dict[str, Any] = {"kind": "gap", "shapes": "", "dtypes": "", "kernel": "", "launches": 0.0, "overlap": False}
    frames = [busy.assign(kind="op", op=busy["key"]), *(frame.assign(**blank) for frame in gaps)]
    return pd.concat([frame for frame in frames if len(frame)])


def _device_calls(facts: Facts) -> pd.DataFrame:
    """One row a call of an op that launched work in the steps, and one a wait."""
    host, work = facts.host, facts.work
    weight = launch_weight(facts)
    owner = facts.owners.row[work.launch[weight > 0]]
    rows, first = np.unique(owner, return_index=True)
    calls = _describe(facts, rows).assign(calls=weight[weight > 0][first])
    waits = wait_calls(host, facts.owners, facts.causes, facts.steps.host, facts.causes.held < LAUNCH)
    return pd.concat([calls, waits.assign(shapes="", dtypes="")])


def _host_calls(facts: Facts) -> pd.DataFrame:
    """One row a call of an op on the steps' thread, and one a loader wait."""
    host, owners, windows = facts.host, facts.owners, facts.steps.host
    here = host.track == facts.steps.thread
    weight = weight_at(windows, host.start)
    rows = np.flatnonzero(here & (owners.row == np.arange(len(here))) & (owners.loader < 0) & (weight > 0))
    calls = _describe(facts, rows).assign(calls=weight[rows])
    waits = wait_calls(host, owners, facts.causes, windows, here & (facts.causes.held == DATA))
    return pd.concat([calls, waits.assign(shapes="", dtypes="")])


def _describe(facts: Facts, owner: Ints) -> pd.DataFrame:
    """The identity columns of owning rows; -1 is work without a launch."""
    frame = describe(facts.host, facts.owners, owner)
    return frame.assign(key=frame["key"].where(owner >= 0, UNATTRIBUTED))
