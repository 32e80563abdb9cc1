"""Host calls that wait for the device: synchronisation, and copies that block their caller.

A call waited for the item that the trace's own records say, else for what ended last before the call did, of what was
launched before it. It then took its own time, that of the quickest call of its name that found the device done, and
what lies between the item's end and the call's is the way back. A call that found the device done depends on the same
item, in case the host comes earlier; one for the whole device also on what was launched last on each other stream.
"""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from qrprof.planner.replay.graph import NONE, Edges, edges
from qrprof.planner.replay.graph import SYNC as SYNC_EDGE
from qrprof.planner.replay.hosts import OWN, WAITED, Points, Waiting, points
from qrprof.planner.replay.records import CLOCKS_NS, Records, awaited_by_calls, last_launched
from qrprof.profiler.events import COPY
from qrprof.profiler.facts import Facts
from qrprof.profiler.idle import SYNC as SYNC_CAUSE
from qrprof.profiler.nesting import Floats, Ints, Mask, named, pick
from qrprof.profiler.work import AFTER_ALL, Work

USUAL_NS: Final = 2000  # that a call takes itself, where all of its name wait
WHOLE: Final = re.compile(r"(Device|Ctx|Context)Synchronize")  # for all streams of a device


@dataclass(frozen=True)
class Waits:
    """By waiting call its row, and what the call itself takes, ns; by item that is waited for the place of the call."""

    row: Ints
    own: Floats
    call: Ints
    item: Ints
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
        row = self.row[self.call]
        return edges(item0 + self.item, ends[self.call], SYNC_EDGE, fixed=self.back, item=self.item, row=row)


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
    call, other = _other_streams(facts, row, item)
    spent = np.minimum(back[call], host.end[row[call]] - work.end[other])
    known = np.flatnonzero(item >= 0)
    back = np.append(back[known], spent).astype(np.float64)
    return Waits(row, own.astype(np.float64), np.append(known, call), np.append(item[known], other), back)


def _other_streams(facts: Facts, row: Ints, item: Ints) -> tuple[Ints, Ints]:
    """(place of the call, item): what calls that wait for a whole device find on streams other than their item's."""
    host, work = facts.host, facts.work
    whole = np.flatnonzero((item >= 0) & named(host, WHOLE.search)[row])
    calls, items = [whole[:0]], [item[:0]]
    for device, stream in np.unique(np.stack([work.device, work.stream]), axis=1).T:
        mine = whole[(work.device[item[whole]] == device) & (work.stream[item[whole]] != stream)]
        last = last_launched(work, np.full(len(mine), device), np.full(len(mine), stream), host.start[row[mine]])
        done = (last >= 0) & (pick(work.end, last, AFTER_ALL) <= host.end[row[mine]] + CLOCKS_NS)
        calls.append(mine[done])
        items.append(last[done])
    return np.concatenate(calls), np.concatenate(items)


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
