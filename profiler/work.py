"""Device work joined to the runtime calls that launched it.

The join is by correlation alone. One launch may own many items (a graph replay). Work without a
launch in the file was launched before the file begins, or its launch was lost: streams run in order,
so it counts as launched with the latest launched work before it on its stream. Where no work at
all has its launch in the file, work counts as launched when it started.
"""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from qrprof.profiler.events import RUNTIME
from qrprof.profiler.nesting import Ints, Mask, Nesting, pick
from qrprof.profiler.trace import Trace

LAUNCH_NAMES: Final = re.compile(r"Launch(?!HostFunc)|Memcpy|Memset|EnqueueKernel")
BEFORE_ALL: Final = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Work:
    """Kernels, copies and memsets by start. On one stream they never overlap: see `start`."""

    name: npt.NDArray[np.object_]
    start: Ints  # not before the end of what ran before it on its stream (programmatic launches overlap)
    end: Ints
    launch: Ints  # the launching call's row in the nesting; -1: not in the file
    launched: Ints  # ns on the host; BEFORE_ALL: before the file begins


def join(trace: Trace, host: Nesting) -> Work:
    """Join the trace's device work to its launches."""
    work = trace.device_work()
    start, end = work["start"].to_numpy(), work["end"].to_numpy()
    launch = _launch_rows(work["correlation"].to_numpy(), host)
    streams = [work["device"], work["track"]]
    before = work["end"].groupby(streams).cummax().groupby(streams).shift(fill_value=BEFORE_ALL).to_numpy()
    own = pick(host.start, launch, BEFORE_ALL)
    launched = _launched(own, launch >= 0, streams) if (launch >= 0).any() else start
    return Work(work["name"].to_numpy(dtype=object), np.minimum(np.maximum(start, before), end), end, launch, launched)


def lost_launches(host: Nesting, work: Work) -> Ints:
    """Rows of the calls that, by their names, launched device work that is not in the file."""
    names = host.rows["name"].cat
    wanted = np.array([LAUNCH_NAMES.search(name) is not None for name in names.categories], dtype=bool)
    launches = pick(wanted, names.codes.to_numpy(), False) & (host.rows["kind"] == RUNTIME).to_numpy()
    outer = launches & ~pick(launches, host.parent, False)
    correlations = host.rows["correlation"].to_numpy()
    found = np.isin(correlations, correlations[work.launch[work.launch >= 0]])
    return np.flatnonzero(outer & ~found)


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


def _launched(own: Ints, matched: Mask, streams: list["pd.Series[int]"]) -> Ints:
    """Launch times, filled in for work without a launch from its stream, or from all where its stream has none."""
    times = pd.Series(own, index=streams[0].index)
    on_stream = times.groupby(streams).cummax().to_numpy()
    has_launch = pd.Series(matched, index=times.index).groupby(streams).transform("any").to_numpy()
    return np.where(matched, own, np.where(has_launch, on_stream, times.cummax().to_numpy()))
