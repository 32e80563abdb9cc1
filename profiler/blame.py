"""Why a device's idle intervals are there, an answer for each: the cause of most of its time, and the host event.

Beside the causes of `idle`: "communication", where the host waits for a collective, or queued work of one stream
for a collective on another; "profiler", beside an overhead row; "unknown", where the file has no host events.
"""

import re
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from qrprof.profiler.events import ANNOTATION, CAUSE_LABELS, OVERHEAD, is_communication
from qrprof.profiler.facts import Facts, feeding_threads
from qrprof.profiler.idle import AWAY, SYNC, UNKNOWN, Pieces, blame, cut, tell, unseen
from qrprof.profiler.nesting import Ints, Nesting, Strings, named, outermost, pick, texts
from qrprof.profiler.steps import Windows, window_at
from qrprof.profiler.trace import Trace
from qrprof.profiler.work import Work, last_ended, next_started

GAP_LABELS: Final = {
    **CAUSE_LABELS,
    "communication": "communication",
    "profiler": "the profiler itself",
}
GAP_CAUSES: Final = tuple(GAP_LABELS)
COMMUNICATION, PROFILER = range(len(CAUSE_LABELS), len(GAP_CAUSES))
COLLECTIVE: Final = re.compile(r"(?:c10d|_?c10d_functional)::|record_param_comms|\w*ccl:")  # what torch calls them
QUEUE_FULL: Final = "Command Buffer Full"  # of the program's own launches: no cost of the profiler's


def blame_gaps(facts: Facts, idle: Windows) -> pd.DataFrame:
    """A row an idle window: cause, op, event, thread (None: unknown), where and phase, as in `gaps.Gap`."""
    host = facts.host
    overheads, names = _overheads(facts.trace)
    parts = _split(facts, idle, overheads)
    sums = parts.groupby(["gap", "cause"])["ns"].transform("sum")
    order = np.lexsort((parts["start"], -parts["ns"], parts["cause"], -sums, parts["gap"]))
    most = parts.iloc[order].drop_duplicates("gap")
    cause, row = most["cause"].to_numpy(), most["row"].to_numpy()
    told = tell(host, facts.owners, Pieces(most["start"].to_numpy(), most["ns"].to_numpy(), cause, row))
    by_profiler = cause == PROFILER
    over = np.where(by_profiler, window_at(overheads, most["start"].to_numpy()), -1)
    silent = by_profiler | (cause == UNKNOWN)
    event = np.where(cause == AWAY, told["op"], pick(host.names(), row, ""))
    thread = pick(host.track, row, facts.steps.thread).astype(object)
    thread[silent] = None
    return pd.DataFrame(
        {
            "cause": np.array(GAP_CAUSES, dtype=object)[cause],
            "op": np.where(silent, "", told["op"]),
            "event": np.where(silent, pick(names, over, ""), event),
            "thread": thread,
            "where": np.where(silent, "", told["where"]),
            "phase": np.where(silent, "", told["phase"]),
        }
    )


def _split(facts: Facts, idle: Windows, overheads: Windows) -> pd.DataFrame:
    """Idle windows cut wherever their cause changes: gap (the window's place), start, ns, cause, row."""
    queued, starved = blame(facts.host, facts.causes, facts.work, idle, feeding_threads(facts))
    queued = _stream_waits(facts.work, queued)
    starved = unseen(facts.host, _host_waits(facts.host, starved))
    start, cause, row = (
        np.concatenate([getattr(queued, name), getattr(starved, name)]) for name in ("start", "cause", "row")
    )
    order = np.argsort(start, kind="stable")
    start, cause, row = start[order], cause[order], row[order]
    begin, end = cut(idle, np.concatenate([start, overheads.start, overheads.end]))
    piece = np.searchsorted(start, begin, side="right") - 1
    beside = window_at(overheads, begin) >= 0
    return pd.DataFrame(
        {
            "gap": window_at(idle, begin),
            "start": begin,
            "ns": end - begin,
            "cause": np.where(beside, PROFILER, cause[piece]),
            "row": row[piece],
        }
    )


def _overheads(trace: Trace) -> tuple[Windows, Strings]:
    """Disjoint stretches of the profiler's own work, and their names."""
    rows = trace.of_kind(OVERHEAD)
    rows = rows[rows["name"] != QUEUE_FULL]
    windows, place = _disjoint(rows["start"].to_numpy(), rows["end"].to_numpy())
    return windows, texts(rows["name"])[place]


def _disjoint(start: Ints, end: Ints) -> tuple[Windows, Ints]:
    """Intervals in order of start without what an earlier one covers, and each one's place among those given."""
    before = np.maximum.accumulate(np.append(start[:1], end))[: len(end)]
    start = np.maximum(start, before)
    place = np.flatnonzero(end > start)
    return Windows(start[place], end[place], np.ones(len(place))), place


def _stream_waits(work: Work, queued: Pieces) -> Pieces:
    """Queued work that follows a collective of another stream has waited for it."""
    before, after = last_ended(work, queued.start), next_started(work, queued.start)
    collective = np.array([is_communication(name) for name in pick(work.name, before, "")], dtype=bool)
    waits = collective & (pick(work.stream, before, 0) != pick(work.stream, after, 0))
    launch = pick(work.launch, before, -1)
    row = np.where(waits & (launch >= 0), launch, queued.row)
    return replace(queued, cause=np.where(waits, COMMUNICATION, queued.cause), row=row)


def _host_waits(host: Nesting, starved: Pieces) -> Pieces:
    """Where the host waits for a collective: in a sync inside one, or idle while another thread carries one out."""
    within = outermost(host, named(host, COLLECTIVE.match)) >= 0
    syncs = (starved.cause == SYNC) & pick(within, starved.row, False)
    carried = np.flatnonzero(named(host, is_communication) & (host.rows["kind"] == ANNOTATION).to_numpy())
    carried = carried[np.argsort(host.start[carried], kind="stable")]
    windows, place = _disjoint(host.start[carried], host.end[carried])
    beside = pick(carried[place], window_at(windows, starved.start), -1)
    idles = (starved.cause == AWAY) & (beside >= 0)
    cause = np.where(syncs | idles, COMMUNICATION, starved.cause)
    return replace(starved, cause=cause, row=np.where(idles, beside, starved.row))
