"""The timeline as numbers: what a viewport of so many columns shows of spans that may be a million.

A lane's spans are sorted once; a frame of W columns then takes some O(W log n) look-ups, whatever it shows. Times are
integer ns from the trace's zero, and a viewport's columns are cut at whole ns, so that the busy time of its columns
sums to that of the viewport.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

SHORTEST_NS: Final = 1000  # of a viewport: every column of a wide terminal keeps some ns


@dataclass(frozen=True)
class Viewport:
    """The stretch of time that is shown, ns: `start` is in it, `end` is not."""

    start: int
    end: int

    @property
    def ns(self) -> int:
        return self.end - self.start

    def edges(self, columns: int) -> Ints:
        """Where its columns begin, and where the last one ends."""
        edges: Ints = self.start + self.ns * np.arange(columns + 1, dtype=np.int64) // columns
        return edges

    def zoomed(self, by: float, at: float = 0.5) -> "Viewport":
        """`by` times as long; what lies at `at` (0: the start, 1: the end) stays there."""
        ns = round(self.ns * by)
        start = self.start + round((self.ns - ns) * at)
        return Viewport(start, start + ns)

    def moved(self, by: float) -> "Viewport":
        """Later by that many lengths of its own."""
        ns = round(self.ns * by)
        return Viewport(self.start + ns, self.end + ns)

    def centred(self, start: int, end: int) -> "Viewport":
        """As long as it is, with a span in its middle."""
        first = (start + end - self.ns) // 2
        return Viewport(first, first + self.ns)

    def within(self, whole: "Viewport") -> "Viewport":
        """Not longer than the whole, not shorter than can be shown, and inside it."""
        ns = min(max(self.ns, SHORTEST_NS), max(whole.ns, SHORTEST_NS))
        start = min(max(self.start - (ns - self.ns) // 2, whole.start), max(whole.end - ns, whole.start))
        return Viewport(start, start + ns)


def around(start: int, end: int) -> Viewport:
    """A viewport in which a span takes eight tenths."""
    margin = max(end - start, SHORTEST_NS // 2) // 8
    return Viewport(start - margin, max(end, start + 1) + margin)


@dataclass
class Tally:
    """How many elements of a timeline's arrays were looked at."""

    looked: int = 0


@dataclass(frozen=True, eq=False)
class Sorted:
    """Times in order, and the only way to ask for a place among them."""

    times: Ints

    def before(self, edges: Ints, tally: Tally) -> Ints:
        """How many of the times lie before each edge."""
        tally.looked += len(edges) * (len(self.times) + 1).bit_length()
        return np.searchsorted(self.times, edges, side="left")


@dataclass(frozen=True, eq=False)
class Touch:
    """Spans that may overlap, by the columns that they lie in; one of no duration lies where it starts."""

    starts: Sorted
    ends: Sorted

    def counts(self, edges: Ints, tally: Tally) -> Ints:
        """By column, how many spans lie in it, be it with a single ns."""
        begun, over = self.starts.before(edges[1:], tally), self.ends.before(edges[:-1] + 1, tally)
        return begun - over


def touch(start: Ints, end: Ints) -> Touch:
    return Touch(Sorted(np.sort(start)), Sorted(np.sort(np.maximum(end, start + 1))))


@dataclass(frozen=True, eq=False)
class Columns:
    """What a lane shows, by column."""

    busy: Ints  # ns in which a span was open
    share: Floats  # of the column, 0 to 1
    count: Ints  # spans that lie in it
    span: Ints  # the lane's span that has most of it; -1: none


@dataclass(frozen=True, eq=False)
class Lane:
    """One row of the timeline. Its spans are sorted by start and may lie inside each other.

    Pieces are disjoint and in order: stretches in which the same span is the innermost one.
    """

    label: str
    start: Ints
    end: Ints
    name: Ints  # codes in `Timeline.names`
    key: Ints  # codes in `Timeline.keys`
    piece_start: Ints
    piece_end: Ints
    piece_span: Ints  # places among the lane's spans

    @cached_property
    def touch(self) -> Touch:
        return touch(self.start, self.end)

    @cached_property
    def pieces(self) -> "Pieces":
        ns = self.piece_end - self.piece_start
        busy = np.concatenate([[0], np.cumsum(ns)])
        return Pieces(Sorted(self.piece_start), Sorted(self.piece_end), busy, ns, halved(ns))

    def columns(self, edges: Ints, tally: Tally) -> Columns:
        """What it shows between each edge and the next."""
        pieces, counts = self.pieces, self.touch.counts(edges, tally)
        busy = np.diff(pieces.busy_before(edges, tally))
        longest = pieces.longest(edges, tally)
        # Where only spans of no duration lie there is no piece: the last that starts there is shown.
        last = self.touch.starts.before(edges[1:], tally) - 1
        span = np.where(counts > 0, last, -1)
        if len(self.piece_span):
            span = np.where(longest >= 0, self.piece_span[longest], span)
        return Columns(busy, busy / np.maximum(np.diff(edges), 1), counts, span)

    def at(self, edges: Ints) -> int:
        """The span to name between two edges; -1: none lies there."""
        return int(self.columns(edges, Tally()).span[0])

    def marks(self, marked: Mask) -> Touch:
        """Its spans in a mask, as what columns they lie in."""
        return touch(self.start[marked], self.end[marked])


@dataclass(frozen=True, eq=False)
class Pieces:
    """Disjoint spans in order, with what one frame asks of them."""

    starts: Sorted
    ends: Sorted
    busy: Ints  # ns of all pieces before each, and of all together
    ns: Ints
    halves: tuple[Ints, ...]  # see `halved`

    def busy_before(self, edges: Ints, tally: Tally) -> Ints:
        """ns in pieces before each edge."""
        over = self.ends.before(edges, tally)
        if not len(self.ns):
            return self.busy[over]
        tally.looked += len(edges)
        here = np.minimum(over, len(self.ns) - 1)  # the piece that may be open at the edge
        part = np.clip(edges - self.starts.times[here], 0, self.ns[here])
        return np.where(over < len(self.ns), self.busy[here] + part, self.busy[over])

    def longest(self, edges: Ints, tally: Tally) -> Ints:
        """By column the piece that has most of it; -1: none does."""
        first = self.ends.before(edges[:-1] + 1, tally)
        last = self.starts.before(edges[1:], tally) - 1
        found = np.where(first <= last, first, -1)
        if not (found >= 0).any():
            return found
        inner = longest_between(self.halves, self.ns, first + 1, np.maximum(last, first + 1), tally)
        best = self._inside(found, edges)
        for other in (inner, np.where(first < last, last, -1)):
            ns = self._inside(other, edges)
            found, best = np.where(ns > best, other, found), np.maximum(ns, best)
        return found

    def _inside(self, place: Ints, edges: Ints) -> Ints:
        """ns of a piece a column that are in the column; -1 where there is none."""
        start, end = self.starts.times[place], self.ends.times[place]
        ns = np.minimum(end, edges[1:]) - np.maximum(start, edges[:-1])
        return np.where(place >= 0, ns, -1)


def halved(values: Ints) -> tuple[Ints, ...]:
    """The places of the largest of each 1, 2, 4, ... values that follow each other."""
    levels = [np.arange(len(values), dtype=np.int64)]
    while len(levels[-1]) > 1:
        left, right = levels[-1][::2], levels[-1][1::2]
        upper = left.copy()
        upper[: len(right)] = np.where(values[right] > values[left[: len(right)]], right, left[: len(right)])
        levels.append(upper)
    return tuple(levels)


def longest_between(halves: Sequence[Ints], values: Ints, first: Ints, end: Ints, tally: Tally) -> Ints:
    """The place of the largest of `values[first:end]` for each pair; -1 where there are none."""
    found = np.full(len(first), -1, dtype=np.int64)
    for level in halves:
        tally.looked += 2 * len(first)
        found = larger(values, found, level, first, (first < end) & (first % 2 == 1))
        first = first + first % 2
        found = larger(values, found, level, end - 1, (first < end) & (end % 2 == 1))
        first, end = first // 2, end // 2
    return found


def larger(values: Ints, found: Ints, level: Ints, place: Ints, wanted: Mask) -> Ints:
    """`found`, or what `level` has at `place` where that is wanted and its value is larger."""
    other = level[np.where(wanted, place, 0)]
    better = wanted & ((found < 0) | (values[other] > values[found]))
    return np.where(better, other, found)


@dataclass(frozen=True, eq=False)
class Timeline:
    """All lanes of a trace. The first ones are the gaps, one a device; a gap's name is its cause."""

    lanes: tuple[Lane, ...]
    gap_lanes: int
    names: tuple[str, ...]
    keys: tuple[str, ...]
    whole: Viewport
    steps: tuple[tuple[int, int], ...]  # (number, start ns) of the recorded steps on the host


@dataclass(frozen=True, eq=False)
class Marked:
    """Spans that a search or the selection asks for."""

    lanes: tuple[Touch, ...]
    start: Ints  # of all of them, in order of time
    lane: Ints
    span: Ints

    @property
    def count(self) -> int:
        return len(self.start)

    def inside(self, view: Viewport) -> int:
        """How many of them lie in a viewport."""
        edges = view.edges(1)
        return sum(int(lane.counts(edges, Tally())[0]) for lane in self.lanes)

    def step(self, after: int, by: int) -> int:
        """The place of the next one (`by` 1) that starts after a time, or of the one before it (-1); it wraps."""
        if by > 0:
            return int(np.searchsorted(self.start, after, side="right")) % self.count
        return (int(np.searchsorted(self.start, after, side="left")) - 1) % self.count


def mark(timeline: Timeline, wanted: Mask, by_key: bool = False) -> Marked:
    """The spans whose name, or whose key, is wanted; `wanted` is by code."""
    masks = [wanted[lane.key if by_key else lane.name] for lane in timeline.lanes]
    spans = [np.flatnonzero(mask) for mask in masks]
    start = together(lane.start[own] for lane, own in zip(timeline.lanes, spans, strict=True))
    order = np.argsort(start, kind="stable")
    return Marked(
        lanes=tuple(lane.marks(mask) for lane, mask in zip(timeline.lanes, masks, strict=True)),
        start=start[order],
        lane=np.repeat(np.arange(len(spans)), [len(own) for own in spans])[order],
        span=together(spans)[order],
    )


def together(parts: Iterable[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])
