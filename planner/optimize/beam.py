"""Which candidates to go on from: the fastest, but unlike one another, and not all of one family."""

from collections.abc import Iterable, Sequence
from typing import Final

from qrprof.planner.optimize.lanes import Lane, speed
from qrprof.planner.optimize.records import Candidate

MARGIN: Final = 1.01  # times the best speed so far, above which a candidate is a better one
ALIKE: Final = 0.9  # of two files' lines that are the same


def usable(candidate: Candidate) -> bool:
    """Whether it was timed and nothing wrong was found."""
    return candidate.over is not None and candidate.outcome in ("PASS", "UNKNOWN")


def mid(candidate: Candidate) -> float:
    """Its speed over the starting file; 0: not known."""
    return candidate.over.mid if candidate.over else 0.0


def best(candidates: Iterable[Candidate]) -> Candidate | None:
    """The fastest that is faster than the starting file. One for a lane alone was timed on a part of the cases."""
    found = [one for one in candidates if usable(one) and not one.lane and mid(one) > 1]
    return max(found, key=lambda one: (mid(one), -one.number), default=None)


def since_better(candidates: Iterable[Candidate]) -> int:
    """How many were judged after the last one that was better than all before it for the same lane, or for all cases.

    A machine that failed judged none.
    """
    count, so_far = 0, dict[str, float]()
    for one in sorted(candidates, key=lambda one: one.number):
        if usable(one) and mid(one) > MARGIN * so_far.get(one.lane, 1.0):
            count, so_far[one.lane] = 0, mid(one)
        elif one.outcome != "INFRA":
            count += 1
    return count


def parents(candidates: Sequence[Candidate], lanes: Sequence[Lane], width: int) -> tuple[tuple[Candidate, ...], ...]:
    """For each lane at most `width` candidates, the fastest there first."""
    found = []
    for lane in lanes:
        here = [one for one in candidates if usable(one) and one.lane in ("", lane.name)]
        here.sort(key=lambda one: (-speed(one, lane), one.number))
        found.append(diverse(here, candidates, width))
    return tuple(found)


def diverse(ranked: Sequence[Candidate], all_: Sequence[Candidate], width: int) -> tuple[Candidate, ...]:
    """The first, then those unlike all that are chosen, then the rest; of another family at least one, if there is."""
    chosen: list[Candidate] = []
    for one in ranked:
        if len(chosen) < width and all(unlike(one, other) for other in chosen):
            chosen.append(one)
    chosen = [*chosen, *(one for one in ranked if one not in chosen)]
    kept, rest = chosen[:width], chosen[width:]
    families = {family(one, all_) for one in kept}
    stranger = next((one for one in rest if family(one, all_) not in families), None)
    if stranger is not None and len(families) == 1 and width > 1:
        kept[-1] = stranger
    return tuple(sorted(kept, key=ranked.index))


def unlike(one: Candidate, other: Candidate) -> bool:
    """Two settings of one file differ where more than one value does; files where enough of their lines do."""
    mine, theirs = one.proposal.settings, other.proposal.settings
    if mine and mine.keys() == theirs.keys():
        return sum(mine[name] != theirs[name] for name in mine) > 1
    a, b = (set(map(str.strip, each.proposal.source.splitlines())) for each in (one, other))
    return len(a & b) < ALIKE * len(a | b)


def lineage(candidate: Candidate, candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """What it was made from, oldest first, and itself."""
    known = {one.sha256: one for one in candidates}
    line, parent = [candidate], candidate.proposal.parent
    while parent in known and known[parent] not in line:
        line.append(known[parent])
        parent = known[parent].proposal.parent
    return tuple(reversed(line))


def family(candidate: Candidate, candidates: Iterable[Candidate]) -> int:
    """The number of the oldest that it was made from."""
    return lineage(candidate, candidates)[0].number
