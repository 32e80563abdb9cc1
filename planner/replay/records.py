"""Synchronisation as the trace itself records it: which stream a call waits for, and which work an event stands for."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from qrprof.planner.replay.graph import NONE
from qrprof.profiler.events import RUNTIME, SYNC
from qrprof.profiler.facts import Facts
from qrprof.profiler.nesting import Ints, pick
from qrprof.profiler.work import Work

STREAM_SYNC, EVENT_SYNC, STREAM_WAIT = "Stream Sync", "Event Sync", "Stream Wait Event"
NEVER: Final = np.iinfo(np.int64).min
CLOCKS_NS: Final = 1000  # the clocks of host and device may disagree by it, and old traces are in microseconds


@dataclass(frozen=True)
class Records:
    """Synchronisation records by the host's call that made them."""

    row: Ints  # the call
    kind: "np.ndarray[tuple[int], np.dtype[np.object_]]"
    device: Ints
    stream: Ints  # that is waited for; of a Stream Wait Event, that waits
    awaits_stream: Ints  # whose work the awaited event stands for; -1: not recorded
    recorded: Ints  # when that event was recorded on the host; NEVER: not in the file


def find_records(facts: Facts) -> Records:
    events, host = facts.trace.events, facts.host
    found = events[(events["kind"] == SYNC) & (events["correlation"] > 0)]
    correlations = host.rows["correlation"].to_numpy()
    calls = np.flatnonzero((host.rows["kind"] == RUNTIME).to_numpy() & (correlations > 0))
    calls = calls[np.argsort(correlations[calls], kind="stable")]
    row = _with_correlation(calls, correlations, found["correlation"].to_numpy())
    made_by = _with_correlation(calls, correlations, found["awaits"].to_numpy())
    known = row >= 0
    return Records(
        row=row[known],
        kind=found["name"].to_numpy(dtype=object)[known],
        device=found["device"].to_numpy(dtype=np.int64)[known],
        stream=found["track"].to_numpy()[known],
        awaits_stream=found["awaits_stream"].to_numpy()[known],
        recorded=pick(host.start, made_by, NEVER)[known],
    )


def last_launched(work: Work, device: Ints, stream: Ints, times: Ints) -> Ints:
    """The item launched last on each stream before each of `times`; NONE: nothing was."""
    found = np.full(len(times), NONE)
    for one, other in set(zip(device.tolist(), stream.tolist(), strict=True)):
        asked = np.flatnonzero((device == one) & (stream == other))
        mine = by_launch(work, np.flatnonzero((work.device == one) & (work.stream == other)))
        place = np.searchsorted(work.launched[mine], times[asked], side="left") - 1
        found[asked] = pick(mine, place, NONE)
    return found


def first_launched(work: Work, device: Ints, stream: Ints, times: Ints) -> Ints:
    """The item launched first on each stream after each of `times`; NONE: nothing is."""
    found = np.full(len(times), NONE)
    for one, other in set(zip(device.tolist(), stream.tolist(), strict=True)):
        asked = np.flatnonzero((device == one) & (stream == other))
        mine = by_launch(work, np.flatnonzero((work.device == one) & (work.stream == other)))
        place = np.searchsorted(work.launched[mine], times[asked], side="right")
        found[asked] = np.append(mine, NONE)[place]
    return found


def by_launch(work: Work, items: Ints) -> Ints:
    """The items in the order of their launches."""
    return items[np.argsort(work.launched[items], kind="stable")]


def awaited_by_calls(facts: Facts, records: Records, rows: Ints) -> Ints:
    """The item that each waiting call waits for, as recorded; NONE: there is no record."""
    by_stream, by_event = records.kind == STREAM_SYNC, records.kind == EVENT_SYNC
    told = (by_stream & (records.stream >= 0)) | (by_event & (records.recorded > NEVER) & (records.awaits_stream >= 0))
    stream = np.where(by_event, records.awaits_stream, records.stream)[told]
    until = np.where(by_event, records.recorded, facts.host.start[records.row])[told]
    item = np.full(len(facts.host.start), NONE)
    item[records.row[told]] = last_launched(facts.work, records.device[told], stream, until)
    return item[rows]


def awaited_by_items(facts: Facts, records: Records) -> tuple[Ints, Ints]:
    """(item, the item of another stream that it has to wait for), where streams wait for events."""
    told = (records.kind == STREAM_WAIT) & (records.recorded > NEVER) & (records.awaits_stream >= 0)
    device, called = records.device[told], facts.host.start[records.row[told]]
    item = first_launched(facts.work, device, records.stream[told], called)
    awaited = last_launched(facts.work, device, records.awaits_stream[told], records.recorded[told])
    both = (item >= 0) & (awaited >= 0)
    item, awaited = item[both], awaited[both]
    held = facts.work.end[awaited] <= facts.work.start[item] + CLOCKS_NS
    return item[held], awaited[held]


def _with_correlation(calls: Ints, correlations: Ints, wanted: Ints) -> Ints:
    """The call of each wanted correlation, of `calls` sorted by theirs; NONE for 0 and where there is none."""
    place = np.searchsorted(correlations[calls], wanted)
    row = np.append(calls, NONE)[place]
    return np.where((wanted > 0) & (pick(correlations, row, 0) == wanted), row, NONE)
