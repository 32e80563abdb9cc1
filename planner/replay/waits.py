"""Host calls that wait for the device: synchronisation, and copies that block their caller.

A call waited for the item that the trace's own records say, else for what ended last before the call did, of what was
launched before it. It then took its own time, that of the quickest call of its name that found the device done, and
what lies between the item's
end and the call's is the way back. A call that found the device done depends on the same item, in case the host comes
earlier.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from qrprof.planner.replay.graph import NONE, Edges, edges
from qrprof.planner.replay.graph import SYNC as SYNC_EDGE
from qrprof.planner.replay.hosts import OWN, WAITED, Points, Waiting, points
from qrprof.planner.replay.records import CLOCKS_NS, Records, awaited_by_calls
from qrprof.profiler.events import COPY
from qrprof.profiler.facts import Facts
from qrprof.profiler.idle import SYNC as SYNC_CAUSE
from qrprof.profiler.nesting import Floats, Ints, Mask, pick
from qrprof.profiler.work import AFTER_ALL, Work

USUAL_NS: Final = 2000  # that a call takes itself, where all of its name wait


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


def find_waits(facts: Facts, records: Records) -> Waits:
    host, work = facts.host, facts.work
    blocking = blocking_copies(facts)
    syncs = (facts.causes.own == SYNC_CAUSE) & (host.end > host.start)
    syncs[work.launch[blocking]] = True
    syncs &= ~pick(syncs, host.parent, False)
    row = np.flatnonzero(syncs) if len(work.start) else np.zeros(0, dtype=np.int64)
    latest = host.end[row] + CLOCKS_NS
    told = awaited_by_calls(facts, records, row)
    copied = np.full(len(host.start), NONE)
    copied[work.launch[blocking]] = np.flatnonzero(blocking)
    item = np.where(copied[row] >= 0, copied[row], np.where(pick(work.end, told, AFTER_ALL) <= latest, told, NONE))
    item = np.where(item >= 0, item, ended_last(work, latest, host.start[row]))
    ended = pick(work.end, item, 0)
    waited = (item >= 0) & (ended > host.start[row])
    least = quickest(facts, row[~waited], row)
    back = np.where(waited, host.end[row] - ended, np.minimum(least, host.end[row] - ended))
    own = np.where(waited, least, host.end[row] - host.start[row])
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


def quickest(facts: Facts, free: Ints, row: Ints) -> Ints:
    """ns of the quickest call of the same name among `free`, which did not wait; no more than the call itself took."""
    host = facts.host
    names = host.rows["name"].cat
    codes = names.codes.to_numpy()
    took = host.end - host.start
    least = np.full(len(names.categories), AFTER_ALL)
    np.minimum.at(least, codes[free], took[free])
    found: Ints = np.minimum(np.where(least == AFTER_ALL, USUAL_NS, least)[codes[row]], took[row])
    return found
