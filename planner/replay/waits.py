"""Host calls that wait for the device: synchronisation, copies that block their caller, and a full launch queue.

A call waited for the item of work that ended last before the call did (of what was launched before it; of what was
launched before the event was recorded, where the trace knows the event). It then took its own time, that of the
quickest call of its name, and what lies between the item's end and the call's is the way back. A call that found
the device done depends on the same item, in case the host comes earlier.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from qrprof.planner.replay.graph import SYNC as SYNC_EDGE
from qrprof.planner.replay.graph import Edges, edges
from qrprof.planner.replay.hosts import OWN, WAITED, Points, Waiting, points
from qrprof.profiler.events import COPY, RUNTIME
from qrprof.profiler.facts import Facts
from qrprof.profiler.idle import SYNC as SYNC_CAUSE
from qrprof.profiler.nesting import Floats, Ints, Mask, pick
from qrprof.profiler.work import AFTER_ALL, Work

CLOCKS_NS: Final = 1000  # the clocks of host and device may disagree by it, and old traces are in microseconds


@dataclass(frozen=True)
class Waits:
    """By waiting call: its row, the item it waits for (NONE: none), and what the call itself takes, ns."""

    row: Ints
    item: Ints
    own: Floats
    back: Floats  # from the item's end to the call's

    def points(self, facts: Facts) -> tuple[Points, Points]:
        host = facts.host
        thread = host.track[self.row]
        return points(thread, host.start[self.row], OWN), points(thread, host.end[self.row], WAITED)

    def waiting(self, facts: Facts) -> Waiting:
        host, row = facts.host, self.row
        return Waiting(host.track[row], host.start[row], host.end[row], row, self.own)

    def edges(self, item0: int, ends: Ints) -> Edges:
        """From the awaited items to the nodes at which the calls return."""
        waits = self.item >= 0
        item = self.item[waits]
        return edges(item0 + item, ends[waits], SYNC_EDGE, fixed=self.back[waits], item=item, row=self.row[waits])


def find_waits(facts: Facts) -> Waits:
    host, work = facts.host, facts.work
    blocking = blocking_copies(facts)
    syncs = (facts.causes.own == SYNC_CAUSE) & (host.end > host.start)
    syncs[work.launch[blocking]] = True
    syncs &= ~pick(syncs, host.parent, False)
    row = np.flatnonzero(syncs)
    if not len(work.start):
        row = row[:0]
    item = ended_last(work, host.end[row] + CLOCKS_NS, _recorded_before(facts, row))
    own_item = np.full(len(host.start), -1)
    own_item[work.launch[blocking]] = np.flatnonzero(blocking)
    item = np.where(own_item[row] >= 0, own_item[row], item)
    ended = pick(work.end, item, 0)
    quickest = _quickest(facts, row)
    waited = (item >= 0) & (ended > host.start[row])
    back = np.where(waited, host.end[row] - ended, np.minimum(quickest, host.end[row] - ended))
    own = np.where(waited, quickest, host.end[row] - host.start[row])
    return Waits(row, item, own.astype(np.float64), back.astype(np.float64))


def blocking_copies(facts: Facts) -> Mask:
    """By item of work: whether it is a copy that had ended when the call that launched it returned."""
    work = facts.work
    returned = pick(facts.host.end, work.launch, 0)
    blocks: Mask = (work.kind == COPY) & (work.launch >= 0) & (work.end <= returned)
    return blocks


def ended_last(work: Work, times: Ints, launched: Ints) -> Ints:
    """The item that ended last until each of `times`, of those launched before `launched`; -1: none."""
    order = np.argsort(work.end, kind="stable")
    place = np.searchsorted(work.end[order], times, side="right") - 1
    while (late := (place >= 0) & (pick(work.launched[order], place, 0) >= launched)).any():
        place = np.where(late, place - 1, place)
    return pick(order, place, -1)


def _recorded_before(facts: Facts, row: Ints) -> Ints:
    """Work launched until then is what the call waits for: until it began, or until its event was recorded."""
    return facts.host.start[row]


def _quickest(facts: Facts, row: Ints) -> Ints:
    """ns of the quickest call of the same name."""
    host = facts.host
    codes = host.rows["name"].cat.codes.to_numpy()
    calls = np.flatnonzero((host.rows["kind"] == RUNTIME).to_numpy())
    least = np.full(len(host.rows["name"].cat.categories), AFTER_ALL)
    np.minimum.at(least, codes[calls], (host.end - host.start)[calls])
    return least[codes[row]]
