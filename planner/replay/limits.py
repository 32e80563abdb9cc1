"""A launch queue is finite: a call that launches into a full one returns when an earlier launch has started."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from qrprof.planner.replay.graph import LIMIT, Edges, edges
from qrprof.planner.replay.hosts import OWN, Points, Waiting, points
from qrprof.planner.replay.records import CLOCKS_NS, by_launch
from qrprof.planner.replay.waits import quickest
from qrprof.profiler.facts import Facts
from qrprof.profiler.nesting import Floats, Ints, Mask
from qrprof.profiler.work import by_stream

QUEUE: Final = 1021  # launches that a stream takes before it blocks the caller, as seen on H200s; CUDA has 1024 places
SHORTEST: Final = 1000  # that a queue is
OFTEN: Final = 10  # calls find a full queue as it is; a number of launches that was never too many comes once or twice


@dataclass(frozen=True)
class Limits:
    """By launch that as many others lie before as the queue takes: what has to start before the call returns."""

    row: Ints  # the launching call
    launched: Ints  # its first item
    item: Ints  # of the launch so many places before
    blocked: Mask  # it waited for that
    own: Floats  # ns that the call takes itself

    def points(self, facts: Facts) -> Points:
        """Where blocked calls begin; they end at their launching points."""
        row = self.row[self.blocked]
        return points(facts.host.track[row], facts.host.start[row], OWN)

    def waiting(self, facts: Facts) -> Waiting:
        host, row = facts.host, self.row[self.blocked]
        return Waiting(host.track[row], host.start[row], host.end[row], row, self.own[self.blocked])

    def edges(self, facts: Facts, item0: int, calls: Ints) -> Edges:
        """From the starts of items to the ends of calls; `calls` are the nodes of the launching calls by item."""
        since = (facts.host.end[self.row] - facts.work.start[self.item]).astype(np.float64)
        since = np.where(self.blocked, since, np.minimum(self.own, since))
        return edges(item0 + self.item, calls[self.launched], LIMIT, fixed=since, row=self.row)


def find_limits(facts: Facts) -> Limits:
    host, work = facts.host, facts.work
    pairs = [_far_apart(facts, places) for places in by_stream(work.device, work.stream)]
    earlier, later = np.concatenate(pairs, axis=1)
    row = work.launch[later]
    kept = work.start[earlier] <= host.end[row] + CLOCKS_NS  # else the queue is longer on this device
    earlier, later, row = earlier[kept], later[kept], row[kept]
    blocked = work.start[earlier] > host.start[row]
    free = np.setdiff1d(work.launch[work.launch >= 0], row[blocked])
    own = quickest(facts, free, row).astype(np.float64)
    return Limits(row, later, earlier, blocked, own)


def _far_apart(facts: Facts, items: Ints) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    """Items of one stream that begin launches a queue's length apart: the earlier, and the later ones."""
    work = facts.work
    mine = items[work.launch[items] >= 0]
    first = by_launch(work, mine[np.sort(np.unique(work.launch[mine], return_index=True)[1])])
    queue = _queue(facts, first)
    return np.stack([first[:-queue], first[queue:]]) if len(first) > queue else np.zeros((2, 0), dtype=np.int64)


def _queue(facts: Facts, first: Ints) -> int:
    """How many launches a stream takes: as many as calls found waiting time and again, and none found more.

    `first` are the first items of the stream's launches, in their order.
    """
    work = facts.work
    called, started = facts.host.start[work.launch[first]], np.sort(work.start[first])
    waiting = np.arange(len(first)) - np.searchsorted(started, called)
    most = int(waiting.max(initial=0))
    return most if most >= SHORTEST and (waiting == most).sum() >= OFTEN else QUEUE
