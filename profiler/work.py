"""Device work joined to the runtime calls that launched it.

The join is by correlation alone. One launch may own many items (a graph replay). Work without a
launch in the file was launched before the file begins, or its launch was lost: streams run in order,
so it counts as launched with the latest launched work before it on its stream. Where no work at
all has its launch in the file, work counts as launched when it started.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

from qrprof.profiler.events import RUNTIME
from qrprof.profiler.nesting import Ints, Mask, Nesting, named, pick, texts
from qrprof.profiler.trace import Trace

# Not memsets: libraries call them for buffers of no bytes, which is no work.
LAUNCH_NAMES: Final = re.compile(r"Launch(?!HostFunc)|Memcpy|EnqueueKernel")
CAPTURE: Final = re.compile(r"Stream(Begin|End)Capture")
BEFORE_ALL: Final = np.iinfo(np.int64).min
AFTER_ALL: Final = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Work:
    """Kernels, copies and memsets by start. On one stream they never overlap: see `start`."""

    kind: npt.NDArray[np.object_]
    name: npt.NDArray[np.object_]
    device: Ints
    stream: Ints  # numbers of different devices may be the same
    began: Ints  # as recorded
    start: Ints  # not before the end of what ran before it on its stream (programmatic launches overlap)
    end: Ints
    before: Ints  # when all that began before it on its stream had ended; BEFORE_ALL: nothing did
    launch: Ints  # the launching call's row in the nesting; -1: not in the file
    launched: Ints  # ns on the host; BEFORE_ALL: before the file begins

    def only(self, kept: Mask) -> "Work":
        return Work(**{field.name: getattr(self, field.name)[kept] for field in fields(self)})


def join(trace: Trace, host: Nesting) -> Work:
    """Join the trace's device work to its launches."""
    work = trace.device_work()
    start, end = work["start"].to_numpy(), work["end"].to_numpy()
    device, stream = work["device"].to_numpy(dtype=np.int64), work["track"].to_numpy()
    launch = _launch_rows(work["correlation"].to_numpy(), host)
    streams = by_stream(device, stream)
    before = np.full(len(work), BEFORE_ALL)
    for places in streams:
        before[places[1:]] = np.maximum.accumulate(end[places])[:-1]
    own = pick(host.start, launch, BEFORE_ALL)
    return Work(
        kind=texts(work["kind"]),
        name=texts(work["name"]),
        device=device,
        stream=stream,
        began=start,
        start=np.minimum(np.maximum(start, before), end),
        end=end,
        before=before,
        launch=launch,
        launched=_launched(own, launch >= 0, streams) if (launch >= 0).any() else start,
    )


def by_stream(device: Ints, stream: Ints) -> list[Ints]:
    """The places of each stream's items, in order."""
    order = np.lexsort((stream, device))  # stable
    changes = (np.diff(device[order]) != 0) | (np.diff(stream[order]) != 0)
    return np.split(order, np.flatnonzero(changes) + 1)


def latest_ended(end: Ints) -> Ints:
    """By item of a sequence the place of the one that ends last up to it; of several, the last."""
    latest: Ints = np.maximum.accumulate(np.where(end == np.maximum.accumulate(end), np.arange(len(end)), 0))
    return latest


def last_ended(work: Work, times: Ints) -> Ints:
    """The item that ended last before each of `times`, at which no work runs; -1: none did."""
    order = np.argsort(work.end, kind="stable")
    return pick(order, np.searchsorted(work.end[order], times, side="right") - 1, -1)


def next_started(work: Work, times: Ints) -> Ints:
    """The item that starts first from each of `times` on; -1: none does."""
    order = np.argsort(work.start, kind="stable")
    return np.append(order, -1)[np.searchsorted(work.start[order], times, side="left")]


def lost_launches(host: Nesting, work: Work) -> Ints:
    """Rows of the calls that, by their names, launched device work that is not in the file.

    Calls that a graph captures launch nothing: its replays do.
    """
    launches = named(host, LAUNCH_NAMES.search) & (host.rows["kind"] == RUNTIME).to_numpy()
    outer = launches & ~pick(launches, host.parent, False)
    correlations = host.rows["correlation"].to_numpy()
    found = np.isin(correlations, correlations[work.launch[work.launch >= 0]])
    return np.flatnonzero(outer & ~found & ~_captured(host))


def _captured(host: Nesting) -> Mask:
    """Whether each row starts between the begin and the end of a capture on its thread; both must be in the file."""
    captured = np.zeros(len(host.start), dtype=bool)
    begins = named(host, lambda name: "StreamBeginCapture" in name)
    bounds = np.flatnonzero(named(host, CAPTURE.search) & (host.rows["kind"] == RUNTIME).to_numpy())
    bounds = bounds[np.argsort(host.start[bounds], kind="stable")]
    for thread in np.unique(host.track[bounds]):
        own = bounds[host.track[bounds] == thread]
        here = np.flatnonzero(host.track == thread)
        after = np.searchsorted(host.start[own], host.start[here], side="right")
        opened = np.concatenate([[False], begins[own], [False]])
        closed = np.concatenate([~begins[own], [False, False]])  # the bound that follows
        captured[here] = opened[after] & closed[after]
    return captured


def _launch_rows(correlation: Ints, host: Nesting) -> Ints:
    """The first runtime row of each correlation (0 is none); -1 where there is none."""
    own = host.rows["correlation"].to_numpy()
    calls = np.flatnonzero((host.rows["kind"] == RUNTIME).to_numpy() & (own != 0))
    calls = calls[np.argsort(host.start[calls], kind="stable")]
    ids, first = np.unique(own[calls], return_index=True)
    rows = calls[first]
    if not len(ids):
        return np.full(len(correlation), -1)
    place = np.minimum(np.searchsorted(ids, correlation), len(ids) - 1)
    return np.where(ids[place] == correlation, rows[place], -1)


def _launched(own: Ints, matched: Mask, streams: Sequence[Ints]) -> Ints:
    """Launch times, filled in for work without a launch from its stream, or from all where its stream has none."""
    latest = np.maximum.accumulate(own)
    for places in streams:
        if matched[places].any():
            latest[places] = np.maximum.accumulate(own[places])
    return np.where(matched, own, latest)
