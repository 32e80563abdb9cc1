"""Host rows as a forest: what encloses what on each thread, and which row is innermost at an instant.

A row's parent is the shortest row of its thread that was open when it started. Rows of a thread that
overlap without one holding the other (they come from rounded stamps and from ranges closed out of
order) are cut at their parent's end, so that what remains nests. A row of no duration that lies
where one row ends belongs to that row, unless another one starts there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from qrprof.profiler.events import ANNOTATION, HOST, OP, RUNTIME

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Strings = npt.NDArray[np.object_]

Scalar = TypeVar("Scalar", bound=np.generic)

HOST_KINDS = (ANNOTATION, OP, RUNTIME)  # outer to inner where two rows have the same start and end
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Nesting:
    """The host rows by thread, then start, then outer before inner; `parent` and `levels` index `rows`.

    `rows["end"]` is cut at the parent's end. `depth` counts the ancestors, `levels[d]` holds the rows with d of them.
    """

    rows: pd.DataFrame
    start: Ints
    end: Ints
    track: Ints
    parent: Ints  # -1: a root
    depth: Ints
    levels: tuple[Ints, ...]

    def names(self) -> Strings:
        return texts(self.rows["name"])


@dataclass(frozen=True)
class Segments:
    """A thread's time line: from `start[i]` to `start[i + 1]` the innermost row is `row[i]` (-1: none)."""

    start: Ints
    row: Ints


def nest(events: pd.DataFrame) -> Nesting:
    """Nest the ops, annotations and runtime calls among a trace's events."""
    kinds = events["kind"].cat
    known = {kind: rank for rank, kind in enumerate(HOST_KINDS)}
    ranks = np.array([known.get(kind, -1) for kind in kinds.categories], dtype=np.int64)
    rank = pick(ranks, kinds.codes.to_numpy(), -1)
    places = np.flatnonzero((rank >= 0) & (events["device"] == HOST).to_numpy())
    track, start, end = (events[name].to_numpy()[places] for name in ("track", "start", "end"))
    order = np.lexsort((rank[places], -end, start, track))
    track, start = track[order], start[order]
    columns = _enclose(track.tolist(), start.tolist(), end[order].tolist())
    parent, depth, end = (np.array(column, dtype=np.int64) for column in columns)
    by_depth = np.argsort(depth, kind="stable")
    levels = np.split(by_depth, np.cumsum(np.bincount(depth))[:-1]) if len(order) else []
    rows = events.take(places[order]).reset_index(drop=True).assign(end=end)
    return Nesting(rows, start, end, track, parent, depth, tuple(levels))


def _enclose(track: Sequence[int], start: Sequence[int], end: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Parent, depth and end within the parent of rows sorted as in `Nesting`."""
    parents: list[int] = []
    depths: list[int] = []
    ends: list[int] = []
    outer: list[tuple[int, int]] = []
    thread, inner, limit = -1, -1, NEVER  # the innermost open row and its end; -1: the thread itself
    for row, (own, begin, close) in enumerate(zip(track, start, end, strict=True)):
        if own != thread:
            thread, inner, limit = own, -1, NEVER
            outer.clear()
        while limit < begin or limit == begin < close:
            inner, limit = outer.pop()
        parents.append(inner)
        depths.append(len(outer))
        outer.append((inner, limit))
        inner, limit = row, min(limit, close)
        ends.append(limit)
    return parents, depths, ends


def pick(values: npt.NDArray[Scalar], rows: npt.NDArray[np.integer[Any]], none: Any) -> npt.NDArray[Scalar]:
    """`values[rows]`, and `none` where the row is -1."""
    if not len(values):
        return np.full(len(rows), none, dtype=values.dtype)
    picked: npt.NDArray[Scalar] = values[rows]
    picked[rows == -1] = none
    return picked


def distinct(*times: Ints) -> Ints:
    """All of the times in order, each once. They come in runs, which a stable sort merges; np.unique hashes: 20x."""
    merged = np.sort(np.concatenate(times), kind="stable")
    once: Ints = merged[np.append(True, merged[1:] != merged[:-1])[: len(merged)]]
    return once


def texts(column: "pd.Series[Any]") -> Strings:
    """A categorical column as objects. By its codes: pandas would make each row's text anew, through Arrow."""
    return pick(column.cat.categories.to_numpy(dtype=object), column.cat.codes.to_numpy(), "")


def passing(column: "pd.Series[Any]", test: Callable[[str], object]) -> Mask:
    """Which texts of a categorical column pass a test."""
    wanted = np.array([bool(test(name)) for name in column.cat.categories.tolist()], dtype=bool)
    return pick(wanted, column.cat.codes.to_numpy(), False)


def named(nesting: Nesting, test: Callable[[str], object]) -> Mask:
    """Rows whose name passes a test."""
    return passing(nesting.rows["name"], test)


def innermost(nesting: Nesting, mask: Mask) -> Ints:
    """For each row the nearest row in `mask` among itself and its ancestors; -1: none."""
    found = np.where(mask, np.arange(len(mask)), -1)
    for level in nesting.levels[1:]:
        found[level] = np.where(found[level] >= 0, found[level], found[nesting.parent[level]])
    return found


def outermost(nesting: Nesting, mask: Mask) -> Ints:
    """For each row the farthest row in `mask` among itself and its ancestors; -1: none."""
    found = np.where(mask, np.arange(len(mask)), -1)
    for level in nesting.levels[1:]:
        above = found[nesting.parent[level]]
        found[level] = np.where(above >= 0, above, found[level])
    return found


def smallest(nesting: Nesting, values: Ints) -> Ints:
    """For each row the smallest value of itself and its ancestors."""
    found = values.copy()
    for level in nesting.levels[1:]:
        found[level] = np.minimum(found[level], found[nesting.parent[level]])
    return found


def segments(nesting: Nesting, thread: int) -> Segments:
    """The time line of a thread. Rows of no duration are never innermost."""
    rows = np.flatnonzero((nesting.track == thread) & (nesting.end > nesting.start))
    depth = nesting.depth[rows]
    times = np.concatenate([nesting.end[rows], nesting.start[rows]])
    states = np.concatenate([nesting.parent[rows], rows])
    opens = np.repeat([False, True], len(rows))
    # At one instant: inner rows end before outer ones, then outer rows start before inner ones; the last one holds.
    order = np.lexsort((np.concatenate([-depth, depth]), opens, times))
    times, states = times[order], states[order]
    last = np.append(times[1:] != times[:-1], True)[: len(times)]
    return Segments(times[last], states[last])


def row_at(line: Segments, times: Ints) -> Ints:
    """The innermost row at each of `times`; -1: none."""
    place = np.searchsorted(line.start, times, side="right") - 1
    return pick(line.row, place, -1)
