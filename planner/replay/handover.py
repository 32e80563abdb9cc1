"""Autograd's threads: they work while the thread that called `backward` pauses.

Rows of another thread that lie within a pause of the steps' thread are a burst: it starts when that pause lets it, and
the pause ends when the burst does. Neither the pause nor the rest between two bursts is anyone's own time.
"""

from dataclasses import dataclass

import numpy as np

from qrprof.planner.replay.graph import HANDOVER, NONE, Edges, edges, together
from qrprof.planner.replay.hosts import HANDS, OWN, TAKES, WAITED, Points, Waiting, points
from qrprof.profiler.facts import Facts, feeding_threads
from qrprof.profiler.idle import AWAY
from qrprof.profiler.nesting import Ints, pick, segments
from qrprof.profiler.owners import BACKWARD


@dataclass(frozen=True)
class Bursts:
    """By burst: its thread, where it starts and ends, and when the first burst of its pause does."""

    main: int  # the thread that pauses
    thread: Ints
    start: Ints
    end: Ints
    opens: Ints

    def points(self) -> tuple[Points, Points, Points, Points]:
        """Of the pausing thread when it hands over and takes over, of the others when they start and end."""
        return (
            points(self.main, self.opens, HANDS),
            points(self.main, self.end, TAKES),
            points(self.thread, self.start, OWN),
            points(self.thread, self.end, WAITED),
        )

    def waiting(self) -> Waiting:
        """Of the pausing thread, from the first start to the last end in each pause."""
        opens, place = np.unique(self.opens, return_inverse=True)
        last = np.zeros(len(opens), dtype=np.int64)
        np.maximum.at(last, place, self.end)
        count = len(opens)
        return Waiting(np.full(count, self.main), opens, last, np.full(count, NONE), np.zeros(count))

    def edges(self, hands: Ints, takes: Ints, starts: Ints, ends: Ints) -> Edges:
        """Between the nodes of `points`."""
        late = (self.start - self.opens).astype(np.float64)
        return together(edges(hands, starts, HANDOVER, fixed=late), edges(ends, takes, HANDOVER))


def find_bursts(facts: Facts) -> Bursts:
    host, main = facts.host, facts.steps.thread
    backward = np.unique(host.track[facts.owners.phase == BACKWARD]).tolist()
    others = [thread for thread in {*backward, *feeding_threads(facts)} if thread != main]
    begin, end = _pauses(facts, main)
    roots = np.flatnonzero((host.depth == 0) & np.isin(host.track, others) & (host.end > host.start))
    pause = np.searchsorted(begin, host.start[roots], side="right") - 1
    inside = (pause >= 0) & (host.end[roots] <= pick(end, pause, 0))
    roots, pause = roots[inside], pause[inside]
    keys, place = np.unique(np.stack([pause, host.track[roots]]), axis=1, return_inverse=True)
    start, stop = np.full(keys.shape[1], np.iinfo(np.int64).max), np.zeros(keys.shape[1], dtype=np.int64)
    np.minimum.at(start, place.ravel(), host.start[roots])
    np.maximum.at(stop, place.ravel(), host.end[roots])
    opens = np.full(len(begin), np.iinfo(np.int64).max)
    np.minimum.at(opens, keys[0], start)
    return Bursts(main, keys[1], start, stop, opens[keys[0]])


def _pauses(facts: Facts, thread: int) -> tuple[Ints, Ints]:
    """(start, end) of the stretches in which a thread runs no op and no call."""
    line = segments(facts.host, thread)
    away = np.append(facts.causes.held, AWAY)[line.row] == AWAY
    turns = np.flatnonzero(np.diff(away, prepend=False))
    starts, ends = line.start[turns[0::2]], line.start[turns[1::2]]
    return starts, np.append(ends, np.iinfo(np.int64).max)[: len(starts)]
