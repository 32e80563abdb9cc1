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

Scalar = TypeVar("Scalar", bound=np.generic)

HOST_KINDS = (ANNOTATION, OP, RUNTIME)  # outer to inner where two rows have the same start and end


@dataclass(frozen=True)
class Nesting:
    """The host rows by thread, then start, then outer before inner; `parent` and `levels` index `rows`.

    `rows["end"]` is cut at the parent's end. `levels[d]` holds the rows with d ancestors.
    """

    rows: pd.DataFrame
    start: Ints
    end: Ints
    track: Ints
    parent: Ints  # -1: a root
    levels: tuple[Ints, ...]

    def names(self) -> npt.NDArray[np.object_]:
        return self.rows["name"].to_numpy(dtype=object)


@dataclass(frozen=True)
class Segments:
    """A thread's time line: from `start[i]` to `start[i + 1]` the innermost row is `row[i]` (-1: none)."""

    start: Ints
    row: Ints


def nest(events: pd.DataFrame) -> Nesting:
    """Nest the ops, annotations and runtime calls among a trace's events."""
    rows = events[events["kind"].isin(HOST_KINDS) & (events["device"] == HOST)]
    kinds = rows["kind"].map({kind: rank for rank, kind in enumerate(HOST_KINDS)}).to_numpy(dtype=np.int64)
    order = np.lexsort((kinds, -rows["end"].to_numpy(), rows["start"].to_numpy(), rows["track"].to_numpy()))
    rows = rows.iloc[order].reset_index(drop=True)
    start, track = rows["start"].to_numpy(), rows["track"].to_numpy()
    parents, depths, ends = _enclose(track.tolist(), start.tolist(), rows["end"].tolist())
    parent, depth, end = (np.asarray(column, dtype=np.int64) for column in (parents, depths, ends))
    by_depth = np.argsort(depth, kind="stable")
    levels = np.split(by_depth, np.cumsum(np.bincount(depth))[:-1]) if len(rows) else []
    return Nesting(rows.assign(end=end), start, end, track, parent, tuple(levels))


def _enclose(track: Sequence[int], start: Sequence[int], end: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Parent, depth and end within the parent of rows sorted as in `Nesting`."""
    parent, depth = [-1] * len(start), [0] * len(start)
    stack: list[int] = []
    for row, begin in enumerate(start):
        if stack and track[stack[-1]] != track[row]:
            stack.clear()
        while stack and (end[stack[-1]] < begin or end[stack[-1]] == begin < end[row]):
            stack.pop()
        if stack:
            parent[row] = stack[-1]
            depth[row] = len(stack)
            end[row] = min(end[row], end[stack[-1]])
        stack.append(row)
    return parent, depth, end


def pick(values: npt.NDArray[Scalar], rows: npt.NDArray[np.integer[Any]], none: Any) -> npt.NDArray[Scalar]:
    """`values[rows]`, and `none` where the row is -1."""
    picked: npt.NDArray[Scalar] = np.append(values, none)[rows]
    return picked


def named(nesting: Nesting, test: Callable[[str], object]) -> Mask:
    """Rows whose name passes a test."""
    names = nesting.rows["name"].cat
    wanted = np.array([bool(test(str(name))) for name in names.categories], dtype=bool)
    return pick(wanted, names.codes.to_numpy(), False)


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
    depth = np.empty(len(nesting.start), dtype=np.int64)
    for number, level in enumerate(nesting.levels):
        depth[level] = number
    times = np.concatenate([nesting.end[rows], nesting.start[rows]])
    states = np.concatenate([nesting.parent[rows], rows])
    opens = np.repeat([False, True], len(rows))
    # At one instant: inner rows end before outer ones, then outer rows start before inner ones; the last one holds.
    order = np.lexsort((np.concatenate([-depth[rows], depth[rows]]), opens, times))
    times, states = times[order], states[order]
    last = np.append(times[1:] != times[:-1], True)[: len(times)]
    return Segments(times[last], states[last])


def row_at(line: Segments, times: Ints) -> Ints:
    """The innermost row at each of `times`; -1: none."""
    place = np.searchsorted(line.start, times, side="right") - 1
    return pick(line.row, place, -1)
