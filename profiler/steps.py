"""The recorded steps as windows of the host's time and of the device's.

Boundaries on the host are the recorder's marks; in a trace without them the starts of the
`ProfilerStep#N` annotations and the end of the last; else the whole trace is one step.

A host may run far ahead of its device, so a step has a window on the device too: its boundary is the
moment when the host has passed the mark and the device has finished all that was launched before
it, which is the stamp that a device event recorded at the mark would carry (the clock of the
unprofiled steps).
"""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.events import ANNOTATION, HOST, MARK_PREFIX, OP
from qrprof.profiler.nesting import Floats, Ints, Mask, passing, pick
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.trace import Trace
from qrprof.profiler.work import BEFORE_ALL, Work

PROFILER_STEP = "ProfilerStep#"


@dataclass(frozen=True)
class Windows:
    """Disjoint stretches of time in order, each with its step's weight in the mean step (they sum to 1)."""

    start: Ints
    end: Ints
    weight: Floats

    @property
    def mean_ns(self) -> float:
        """Their time in a mean step."""
        return float(((self.end - self.start) * self.weight).sum())

    def only(self, kept: Mask) -> "Windows":
        return Windows(self.start[kept], self.end[kept], self.weight[kept])


@dataclass(frozen=True)
class Steps:
    host: Windows
    device: Windows
    numbers: Ints  # the steps' own numbers; 0 where the whole trace is one step
    thread: int  # the host thread that the boundaries lie on


def find_steps(trace: Trace, run: RunInfo | None, work: Work) -> Steps:
    """The windows of the recorded steps. Raises QrprofError where the trace is empty."""
    events = trace.events
    if events.empty or events["end"].max() <= events["start"].min():
        of = f" of run {run.id}" if run else ""
        raise QrprofError(f"the trace{of} holds no time; record it again with `qrprof trace`")
    opening = _named(events, MARK_PREFIX)
    if len(opening) > 1:
        bounds, numbers = opening["start"].to_numpy(), _numbers(opening, MARK_PREFIX)
    else:
        opening = _named(events, PROFILER_STEP)
        bounds = np.append(opening["start"].to_numpy(), opening["end"].max() if len(opening) else 0)
        numbers = _numbers(opening, PROFILER_STEP)
        numbers = np.append(numbers, numbers[-1:] + 1)
    if opening.empty:
        whole = Windows(np.array([events["start"].min()]), np.array([events["end"].max()]), np.ones(1))
        return Steps(whole, whole, np.zeros(1, dtype=np.int64), _busiest_thread(events))
    weight = _weights(numbers, run)
    host, device = (
        Windows(times[:-1], times[1:], weight).only(weight > 0) for times in (bounds, device_bounds(bounds, work))
    )
    if not (host.end > host.start).any():
        of = f" of run {run.id}" if run else ""
        raise QrprofError(f"no whole step is in the trace{of}: no two boundaries follow each other; record more steps")
    return Steps(host, device, numbers[:-1][weight > 0], int(opening["track"].iloc[0]))


def device_bounds(bounds: Ints, work: Work) -> Ints:
    """For each host boundary the moment when it is passed and all work launched before it is done."""
    order = np.argsort(work.launched, kind="stable")
    done = np.maximum.accumulate(np.append(bounds[0], work.end[order]))
    moments: Ints = np.maximum(bounds, done[np.searchsorted(work.launched[order], bounds, side="left")])
    return moments


def window_at(windows: Windows, times: Ints) -> Ints:
    """The place of the window that holds each of `times`; -1 outside."""
    place = np.searchsorted(windows.start, times, side="right") - 1
    return np.where(times < pick(windows.end, place, BEFORE_ALL), place, -1)


def weight_at(windows: Windows, times: Ints) -> Floats:
    """The weight of the window that holds each of `times`; 0 outside."""
    return pick(windows.weight, window_at(windows, times), 0.0)


def _named(events: pd.DataFrame, prefix: str) -> pd.DataFrame:
    numbered = passing(events["name"], re.compile(re.escape(prefix) + "[0-9]+").fullmatch)
    return events[numbered & (events["kind"] == ANNOTATION) & (events["device"] == HOST)]


def _numbers(annotations: pd.DataFrame, prefix: str) -> Ints:
    return np.array([int(name.removeprefix(prefix)) for name in annotations["name"].astype(str)], dtype=np.int64)


def _busiest_thread(events: pd.DataFrame) -> int:
    """The thread with most time in ops, which counts once however deep they nest; 0 where there are no ops."""
    ops = events[events["kind"] == OP].sort_values(["track", "start"])
    threads, place = np.unique(ops["track"].to_numpy(), return_inverse=True)
    covered = ops.groupby("track")["end"].cummax().groupby(ops["track"]).shift(fill_value=BEFORE_ALL)
    fresh = ops["end"] - np.maximum(ops["start"], covered)
    time = np.bincount(place, weights=fresh.clip(lower=0).to_numpy())
    return int(threads[time.argmax()]) if len(threads) else 0


def _weights(numbers: Ints, run: RunInfo | None) -> Floats:
    """Of the step after each boundary but the last. Boundaries whose numbers do not follow each other bound no step.

    Where no record knows any of the step numbers (an imported trace) all steps weigh the same.
    """
    known = {step.index: step.weight for step in run.recorded} if run else {}
    listed = np.array([known.get(int(number), 0.0) for number in numbers[:-1]])
    weight = np.where(np.diff(numbers) == 1, listed if listed.any() else 1.0, 0.0)
    return weight / (weight.sum() or 1.0)
