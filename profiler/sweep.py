"""One pass over the device time line: what each item of work gets of the steps, and when nothing ran."""

from dataclasses import dataclass

import numpy as np

from qrprof.profiler.nesting import Floats, Ints, Mask, distinct
from qrprof.profiler.steps import Windows, weight_at
from qrprof.profiler.work import Work


@dataclass(frozen=True)
class Sweep:
    ns: Floats  # by item of work, per mean step: its time in the windows, shared with what ran beside it
    overlap: Mask  # by item: something ran beside it in the windows
    idle: Windows  # where nothing ran; the weights are those of the windows


def sweep(work: Work, windows: Windows) -> Sweep:
    """Divide the windows among the work that runs in them; n busy streams get 1/n each."""
    bounds = distinct(work.start, work.end, windows.start, windows.end)
    first, last = np.searchsorted(bounds, work.start), np.searchsorted(bounds, work.end)
    busy = np.cumsum(np.bincount(first, minlength=len(bounds)) - np.bincount(last, minlength=len(bounds)))[:-1]
    weight = weight_at(windows, bounds[:-1])
    share = np.where(busy > 0, np.diff(bounds) * weight / np.maximum(busy, 1), 0.0)
    shared = (busy > 1) & (weight > 0)
    idle = (busy == 0) & (weight > 0)
    return Sweep(
        _between(share, first, last),
        _between(shared.astype(np.float64), first, last) > 0,
        Windows(bounds[:-1][idle], bounds[1:][idle], weight[idle]),
    )


def _between(values: Floats, first: Ints, last: Ints) -> Floats:
    """Sum of `values[first:last]` for each pair."""
    total: Floats = np.concatenate([[0.0], np.cumsum(values)])
    return total[last] - total[first]
