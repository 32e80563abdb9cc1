"""What the host did while nothing ran for the program: the causes of idle time.

An idle ns has one cause, the first in the order of `events.CAUSES` that holds for some host thread at
that instant: data (inside a DataLoader's `__next__`), sync, copy and alloc (inside such a runtime call),
launch (inside an op or any other runtime call), host (none of these). Where the file does not show the host it is
"unknown": see `unseen`. Whatever encloses counts too:
a sync inside a DataLoader's `__next__` is data.

Threads that feed the device (they launch its work, or the steps' boundaries lie on them) are asked
first, and others only where these do nothing: a thread that pins memory or prefetches batches in the
background is not what the device waits for while the program's own thread launches.

Where the next work was queued before the device fell idle (its launching call had returned), the host is not
to blame, whatever it did: that time is the launch's own, cause launch, op that of the next work. A program that
waits in `.item()` for a long queue does not gain the pauses between the queue's kernels by dropping `.item()`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from qrprof.profiler.events import CAUSE_LABELS, CAUSES, OP, RUNTIME
from qrprof.profiler.nesting import Floats, Ints, Mask, Nesting, Segments, distinct, pick, row_at, segments, smallest
from qrprof.profiler.owners import BACKWARD, FORWARD, PHASES, Owners
from qrprof.profiler.steps import Windows, weight_at
from qrprof.profiler.sums import Columns
from qrprof.profiler.work import AFTER_ALL, BEFORE_ALL, Work, next_started

DATA, SYNC, COPY, ALLOC, LAUNCH, AWAY = range(len(CAUSES))
UNKNOWN: Final = len(CAUSES)
CALL_NAMES: Final = {
    SYNC: ("Synchronize",),
    COPY: ("Memcpy",),
    ALLOC: ("Malloc", "Free", "HostAlloc", "MemAlloc", "MemCreate", "MemMap", "MemUnmap", "MemRelease"),
}


@dataclass(frozen=True)
class Causes:
    """By host row, as indices in `events.CAUSES`: what it is by itself, and with what encloses it."""

    own: Ints
    held: Ints


@dataclass(frozen=True)
class Pieces:
    """Stretches of time in which no thread's innermost row changes."""

    start: Ints
    ns: Floats  # per mean step
    cause: Ints
    row: Ints  # the host row that is blamed; -1: none


def find_causes(host: Nesting, owners: Owners) -> Causes:
    """The cause that each host row stands for."""
    names = host.rows["name"].cat
    by_name = np.full(len(names.categories), LAUNCH)
    for number, name in enumerate(names.categories):
        matches = (cause for cause, parts in CALL_NAMES.items() if any(part in name for part in parts))
        by_name[number] = next(matches, LAUNCH)
    kind = host.rows["kind"]
    own = np.select([kind == RUNTIME, kind == OP], [pick(by_name, names.codes.to_numpy(), AWAY), LAUNCH], AWAY)
    own = np.where(owners.loader == np.arange(len(own)), DATA, own)
    return Causes(own, smallest(host, own))


def blame(host: Nesting, causes: Causes, work: Work, idle: Windows, feeding: Sequence[int]) -> tuple[Pieces, Pieces]:
    """The causes of idle windows, first of those in which the next work was queued, then of the others.

    `feeding` are the threads that feed the device, the steps' own thread first.
    """
    launch = pick(work.launch, next_started(work, idle.end), -1)
    queued = (launch >= 0) & (pick(host.end, launch, 0) <= idle.start)
    waited = idle.only(queued)
    ns = (waited.end - waited.start) * waited.weight
    in_queue = Pieces(waited.start, ns, np.full(len(ns), LAUNCH), launch[queued])
    return in_queue, blame_host(host, causes, idle.only(~queued), feeding)


def blame_host(host: Nesting, causes: Causes, idle: Windows, feeding: Sequence[int]) -> Pieces:
    """Cut idle windows where the host's state changes, and find each piece's cause.

    At one instant the first of several threads with the same cause is blamed.
    """
    others = sorted(set(distinct(host.track).tolist()) - set(feeding))
    lines = [segments(host, thread) for thread in (*feeding, *others)]
    start, end = cut(idle, np.concatenate([line.start for line in lines]))
    held = np.append(causes.held, AWAY)  # of row -1
    row = first_cause(held, lines[: len(feeding)], start)
    if others:
        row = np.where(held[row] == AWAY, first_cause(held, [lines[0], *lines[len(feeding) :]], start), row)
    return Pieces(start, (end - start) * weight_at(idle, start), held[row], row)


def unseen(host: Nesting, starved: Pieces) -> Pieces:
    """Nothing says what the host did before its first event and after its last, and between calls without any ops."""
    first, last = host.start.min(initial=AFTER_ALL), host.end.max(initial=BEFORE_ALL)
    calls_only = (host.rows["kind"] == RUNTIME).all()
    hidden = (starved.start < first) | (starved.start >= last) | ((starved.cause == AWAY) & calls_only)
    return replace(starved, cause=np.where(hidden, UNKNOWN, starved.cause))


def first_cause(held: Ints, lines: Sequence[Segments], times: Ints) -> Ints:
    """At each time the innermost row of the thread whose cause comes first; of the first thread where several do."""
    row = row_at(lines[0], times)
    for line in lines[1:]:
        theirs = row_at(line, times)
        row = np.where(held[theirs] < held[row], theirs, row)
    return row


def cut(windows: Windows, times: Ints) -> tuple[Ints, Ints]:
    """(start, end) of what the windows fall into when cut at `times`."""
    bounds = distinct(windows.start, windows.end, times)
    start, end = bounds[:-1], bounds[1:]
    inside = weight_at(windows, start) > 0
    return start[inside], end[inside]


def gap_rows(host: Nesting, owners: Owners, pieces: Pieces) -> Columns:
    """Rows of a partition (key, op, phase, where, ns) for pieces of idle time, one a piece."""
    labels = np.array([f"gap:{cause}" for cause in CAUSE_LABELS], dtype=object)
    return {"key": labels[pieces.cause], **tell(host, owners, pieces), "ns": pieces.ns}


def tell(host: Nesting, owners: Owners, pieces: Pieces) -> Columns:
    """Whom the pieces are blamed on (op, phase, where); for the host's own work `op` is the annotation around it."""
    row, cause = pieces.row, pieces.cause
    owner = np.where(cause == AWAY, -1, pick(owners.row, row, -1))
    told = np.select(
        [cause == DATA, cause == AWAY],
        [pick(owners.loader, row, -1), pick(owners.annotation, row, -1)],
        owner,
    )
    phase = pick(owners.phase, row, FORWARD)
    away = (cause == AWAY) & (phase == FORWARD) & between_nodes(host, owners, pieces.start)
    return {
        "op": pick(owners.name, told, ""),
        "phase": PHASES[np.where(away, BACKWARD, phase)],
        "where": pick(owners.where, np.where(owner >= 0, owner, row), ""),
    }


def between_nodes(host: Nesting, owners: Owners, times: Ints) -> Mask:
    """Whether the op that started last before each time, and the one that starts next, are of the backward pass."""
    ops = np.flatnonzero((host.rows["kind"] == OP).to_numpy())
    ops = ops[np.argsort(host.start[ops], kind="stable")]
    backward: Mask = np.concatenate([[False], owners.phase[ops] == BACKWARD, [False]])
    after = np.searchsorted(host.start[ops], times, side="right")
    return backward[after] & backward[after + 1]


def wait_calls(host: Nesting, owners: Owners, causes: Causes, windows: Windows, asked: Mask) -> Columns:
    """Loader waits, and sync, copy and alloc calls, that start in the windows (key, phase, where, calls per mean step).

    Rows outside `asked` are left out, and what runs inside another call of the same or an earlier cause.
    """
    outer = pick(causes.held, host.parent, AWAY)
    begins = asked & (causes.own == causes.held) & (causes.held < LAUNCH) & (outer != causes.held)
    weight = weight_at(windows, host.start)
    rows = np.flatnonzero(begins & (weight > 0))
    counted = gap_rows(host, owners, Pieces(host.start[rows], weight[rows], causes.held[rows], rows))
    return {"key": counted["key"], "phase": counted["phase"], "where": counted["where"], "calls": counted["ns"]}
