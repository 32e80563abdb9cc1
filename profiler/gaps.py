"""When a device had nothing to do, and why: its idle intervals over 3 us inside the recorded steps.

An interval is idle where no stream of the device works. It has one cause, that of most of its time: one of
`events.CAUSES` as in `idle`; or "communication", where the host waits for a collective, or a stream waits for
one that ran on another; or "profiler", beside an overhead row; or "unknown", where the file has no host events.
So the causes of whole intervals need not add up to those of the partition, which divides every interval; all
intervals together, with the shorter ones, do.
"""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import pandas as pd

from qrprof.profiler.blame import blame_gaps
from qrprof.profiler.calibrate import DeviceTimes, calibrate_device
from qrprof.profiler.coverage import Coverage, cover
from qrprof.profiler.facts import Facts, find_facts, only_device
from qrprof.profiler.nesting import Floats, Ints, pick
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.steps import Windows, window_at
from qrprof.profiler.trace import Trace
from qrprof.profiler.work import last_ended, next_started

THRESHOLD_NS: Final = 3000  # kernels that are queued follow each other in 1 to 2 us
NO_DEVICE: Final = "no device work in the steps"


@dataclass(frozen=True)
class Gap:
    """An idle interval of a device inside a recorded step."""

    device: int
    step: int  # the step's own number; 0 where the whole trace is one step
    start: int  # ns from the trace's zero
    ns: int  # as recorded
    weight: float  # of its step in the mean step
    share: float | None  # of the mean unprofiled step, calibrated; of the mean recorded one where none was timed
    cause: str  # one of GAP_CAUSES
    op: str  # the op, annotation or call to blame; "": none
    event: str  # the innermost host event there, or the profiler's; "": none
    thread: int | None  # of the event
    where: str  # call site or innermost user annotation; "": unknown
    phase: str
    before: str  # names of the device work that ended last before it and that started first after it; "": none
    after: str

    @property
    def end(self) -> int:
        return self.start + self.ns


@dataclass(frozen=True)
class DeviceIdle:
    """Of the mean recorded step, ns: they sum to its length."""

    device: int
    busy_ns: float
    gap_ns: float  # in intervals over the threshold
    short_ns: float  # in shorter ones


@dataclass(frozen=True)
class Idle:
    coverage: Coverage
    recorded_ns: float  # the mean recorded step
    step_ns: float | None  # the mean unprofiled step; None: never timed
    factor: float | None  # from recorded to unprofiled time, of all the idle time that all devices share
    withheld: str | None  # why gaps have no shares; with `gaps` None: why there are none
    devices: tuple[DeviceIdle, ...]
    gaps: list[Gap] | None  # by device and time; None: withheld


def gaps(trace: Trace, run: RunInfo | None = None) -> list[Gap]:
    """The idle intervals over 3 us of each device inside the steps, by device and time.

    `run` knows the steps' weights and unprofiled time; without it every step weighs the same and shares are of the
    mean recorded step. Empty where `coverage` abstains, since idle time is then withheld. Raises QrprofError where
    the trace is empty.
    """
    return find_idle(find_facts(trace, run), run).gaps or []


def find_idle(facts: Facts, run: RunInfo | None) -> Idle:
    coverage = cover(facts)
    windows = facts.steps.device
    swept = facts.swept
    recorded = windows.mean_ns
    step = run.step_ns() if run else None
    missing = coverage.abstains or (None if (swept.ns > 0).any() else NO_DEVICE)
    if missing:
        return Idle(coverage, recorded, step, None, missing, (), None)
    times = calibrate_device(facts, run)
    calibration = times.calibration
    mean = None if calibration.withheld else step or recorded
    shared = _shared(facts, times)
    found = [
        _device(only_device(facts, device), shared, mean)
        for device in np.unique(facts.work.device[swept.ns > 0]).tolist()
    ]
    return Idle(
        coverage=coverage,
        recorded_ns=recorded,
        step_ns=step,
        factor=calibration.factor,
        withheld=calibration.withheld,
        devices=tuple(device for device, _ in found),
        gaps=[gap for _, some in found for gap in some],
    )


def by_cause(idle: Idle) -> pd.DataFrame:
    """The gaps of the mean step by device and cause, largest first.

    Columns: device, cause, gaps (their number), recorded_ns, ns (calibrated; as recorded without a factor) and share
    (NaN where withheld).
    """
    columns = ["device", "cause", "gaps", "recorded_ns", "share"]
    rows = [
        (
            gap.device,
            gap.cause,
            gap.weight,
            gap.weight * gap.ns,
            np.nan if gap.share is None else gap.weight * gap.share,
        )
        for gap in idle.gaps or []
    ]
    sums = pd.DataFrame(rows, columns=columns).groupby(["device", "cause"], as_index=False).sum(min_count=1)
    calibrated = sums["share"] * (idle.step_ns or idle.recorded_ns)
    sums = sums.assign(ns=calibrated.fillna(sums["recorded_ns"]))
    return sums.sort_values(["device", "ns"], ascending=[True, False]).reset_index(drop=True)


@dataclass(frozen=True)
class _Shared:
    """Idle time that all devices share, in pieces. Where another device works, idle time takes the factor of its work.

    So the busy and the idle time of each device sum to the step.
    """

    start: Ints
    recorded: Floats  # ns per mean step
    ns: Floats  # the same, calibrated
    busy_factor: float

    def calibrated(self, idle: Windows) -> Floats:
        """ns of the idle windows of one device."""
        place = window_at(idle, self.start)
        here = place >= 0
        recorded, ns = (
            np.bincount(place[here], weights=column[here], minlength=len(idle.start)) / idle.weight
            for column in (self.recorded, self.ns)
        )
        found: Floats = ns + self.busy_factor * (idle.end - idle.start - recorded)
        return found


def _shared(facts: Facts, times: DeviceTimes) -> _Shared:
    return _Shared(
        start=np.concatenate([times.queued.start, times.starved.start]),
        recorded=np.concatenate([times.queued.ns, times.starved.ns]),
        ns=np.concatenate([times.queued_ns, times.starved_ns]),
        busy_factor=float(times.busy_ns.sum() / facts.swept.ns.sum()),
    )


def _device(facts: Facts, shared: _Shared, mean: float | None) -> tuple[DeviceIdle, list[Gap]]:
    """The idle time of the one device that the work of `facts` is on; its shares are of `mean`, None: withheld."""
    work, windows, swept = facts.work, facts.steps.device, facts.swept
    ns = swept.idle.end - swept.idle.start
    long = swept.idle.only(ns > THRESHOLD_NS)
    all_ns, gap_ns = swept.idle.mean_ns, long.mean_ns
    device = int(work.device[0])
    columns = blame_gaps(facts, long).assign(
        device=device,
        step=facts.steps.numbers[window_at(windows, long.start)],
        start=long.start,
        ns=long.end - long.start,
        weight=long.weight,
        share=None if mean is None else shared.calibrated(long) / mean,
        before=pick(work.name, last_ended(work, long.start), ""),
        after=pick(work.name, next_started(work, long.end), ""),
    )
    rows = zip(*(columns[field.name].tolist() for field in fields(Gap)), strict=True)
    found = [Gap(*row) for row in rows]
    return DeviceIdle(device, float(swept.ns.sum()), gap_ns, all_ns - gap_ns), found
