"""The pause that holds most of the host's own work: time in which the program does something outside torch.

Python between two ops of a program takes microseconds, many times a step. A batch that is made in Python, or a log that
is written, is one stretch or a few. Where such stretches at one place hold at least half of the host's work, that place
is told: the annotation around it, else what ran last before and first after it.
"""

from typing import Final

import numpy as np

from qrprof.profiler.facts import Facts
from qrprof.profiler.idle import AWAY, Pieces
from qrprof.profiler.nesting import Floats, Ints, Strings, pick
from qrprof.profiler.owners import NODE, STEP_NAMES, starting
from qrprof.profiler.sums import Columns

PAUSE: Final = "a pause "  # how whom it is blamed on begins
STEPS_END: Final = "the end of the last step"
SHORTEST_NS: Final = 100_000  # python between two ops takes less
FEW: Final = 0.1  # of the host's work in a mean step, at least, is one pause
MOST: Final = 0.5  # of the host's work is in pauses at one place, at least


def tell_pauses(facts: Facts, pieces: Pieces, length: Ints, rows: Columns) -> Columns:
    """The rows of a partition, one a piece, with the place of the pauses in `op`.

    The pieces lie on the steps' thread; `length` is the time that each takes where it stands. Their phase stays that of
    other work of the host: it is part of what two runs are compared by, which must not hang on how long a pause is.
    """
    away = pieces.cause == AWAY
    total = float(rows["ns"][away].sum())
    long = np.flatnonzero(away & (length >= max(SHORTEST_NS, FEW * total)))
    if not len(long):
        return rows
    place = _places(facts, pieces.start[long], rows["op"][long])
    chosen = _main(place, rows["ns"][long])
    here = long[chosen]
    if rows["ns"][here].sum() < MOST * total:
        return rows
    op = rows["op"].copy()
    op[here] = place[chosen]
    return rows | {"op": op}


def _main(place: Strings, ns: Floats) -> Ints:
    """Where the place with the most time stands; of equals the first one in the alphabet."""
    names, group = np.unique(place.astype(str), return_inverse=True)
    return np.flatnonzero(group == np.bincount(group, weights=ns, minlength=len(names)).argmax())


def _places(facts: Facts, start: Ints, around: Strings) -> Strings:
    """The place of pauses by their start and the annotation around them ("": none)."""
    before, after = _neighbours(facts, start)
    ends = (
        pick(facts.owners.name, before, "the trace's begin").tolist(),
        pick(facts.owners.name, after, STEPS_END).tolist(),
    )
    follows = {one: other for one, other in zip(*ends, strict=True) if other != STEPS_END}
    between = [
        f"{PAUSE}between {_short(one)} and {_short(follows.get(one, other) if other == STEPS_END else other)}"
        for one, other in zip(*ends, strict=True)
    ]
    return np.where(around != "", PAUSE + "in " + around, np.array(between, dtype=object))


def _short(name: str) -> str:
    return name.removeprefix(f"{NODE}: ")


def _neighbours(facts: Facts, start: Ints) -> tuple[Ints, Ints]:
    """The outermost rows of the steps' thread that ended last before each time and begin first after it; -1: none.

    What begins after the last step is the recorder's own.
    """
    host, windows = facts.host, facts.steps.host
    there = (host.track == facts.steps.thread) & (host.end > host.start) & (host.start < windows.end[-1])
    there &= ~starting(host, *STEP_NAMES)
    rows = np.flatnonzero(there)
    by_end = rows[np.lexsort((-host.depth[rows], host.end[rows]))]
    by_start = rows[np.lexsort((host.depth[rows], host.start[rows]))]
    before = np.append(by_end, -1)[np.searchsorted(host.end[by_end], start, side="right") - 1]
    after = np.append(by_start, -1)[np.searchsorted(host.start[by_start], start)]
    return before, after
