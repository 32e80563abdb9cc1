"""Nesting: parents, innermost rows, time lines."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qrprof.profiler.nesting import distinct, innermost, nest, outermost, pick, row_at, segments, smallest
from qrprof.profiler.trace import Trace


def tree(rows: list[dict[str, Any]]) -> dict[str, str | None]:
    """name -> parent's name, of rows with unique names."""
    nesting = nest(Trace.from_rows(rows).events)
    names = nesting.names()
    return {
        name: None if parent < 0 else names[parent] for name, parent in zip(names, nesting.parent.tolist(), strict=True)
    }


def time_line(rows: list[dict[str, Any]], thread: int) -> list[tuple[int, str | None]]:
    nesting = nest(Trace.from_rows(rows).events)
    line = segments(nesting, thread)
    names = nesting.names()
    return [
        (start, None if row < 0 else names[row])
        for start, row in zip(line.start.tolist(), line.row.tolist(), strict=True)
    ]


def test_the_parent_is_the_shortest_open_row_of_the_same_thread(build: Any) -> None:
    rows = [
        build.op("a", 0, 100),
        build.op("b", 10, 30),
        build.op("c", 12, 20),
        build.op("d", 30, 40),
        build.op("other", 5, 95, thread=2),
        build.op("e", 100, 110),
    ]
    assert tree(rows) == {"a": None, "b": "a", "c": "b", "d": "a", "other": None, "e": None}


def test_device_rows_and_overhead_are_not_nested(build: Any) -> None:
    rows = [build.op("a", 0, 10), build.kernel("k", 2, 4), {"kind": "overhead", "name": "flush", "start": 1, "end": 3}]
    assert tree(rows) == {"a": None}


def test_of_rows_with_the_same_span_annotations_hold_ops_and_ops_hold_calls(build: Any) -> None:
    rows = [build.launch(1, 0, 10), build.op("op", 0, 10), build.note("range", 0, 10)]
    assert tree(rows) == {"range": None, "op": "range", "cudaLaunchKernel": "op"}


def test_a_row_that_outlives_its_parent_is_cut(build: Any) -> None:
    nesting = nest(Trace.from_rows([build.op("a", 0, 50), build.op("b", 40, 70), build.op("c", 60, 65)]).events)
    assert nesting.end.tolist() == [50, 50, 65]
    assert nesting.parent.tolist() == [-1, 0, -1]


def test_a_call_of_no_duration_at_the_end_of_an_op_is_inside_it(build: Any) -> None:
    assert tree([build.op("a", 0, 10), build.launch(1, 10, 10)])["cudaLaunchKernel"] == "a"


def test_a_call_of_no_duration_where_two_ops_meet_belongs_to_the_one_that_starts(build: Any) -> None:
    assert tree([build.op("a", 0, 10), build.launch(1, 10, 10), build.op("b", 10, 20)])["cudaLaunchKernel"] == "b"


def test_time_line(build: Any) -> None:
    rows = [
        build.op("a", 0, 100),
        build.op("b", 10, 30),
        build.op("c", 30, 50),
        build.op("d", 40, 50),
        build.op("nothing", 60, 60),
        build.op("e", 120, 130),
        build.op("other", 0, 200, thread=2),
    ]
    assert time_line(rows, 1) == [
        (0, "a"),
        (10, "b"),
        (30, "c"),
        (40, "d"),
        (50, "a"),
        (100, None),
        (120, "e"),
        (130, None),
    ]
    assert time_line(rows, 3) == []


def test_row_at_knows_what_lies_before_and_after(build: Any) -> None:
    nesting = nest(Trace.from_rows([build.op("a", 10, 20), build.op("b", 12, 14)]).events)
    times = np.array([9, 10, 11, 12, 13, 14, 19, 20, 99])
    assert row_at(segments(nesting, 1), times).tolist() == [-1, 0, 0, 1, 1, 0, 0, -1, -1]
    assert row_at(segments(nesting, 2), times).tolist() == [-1] * len(times)


def test_nearest_and_farthest_row_of_a_mask(build: Any) -> None:
    rows = [build.op("x1", 0, 9), build.op("y", 1, 8), build.op("x2", 2, 7), build.op("z", 3, 6), build.op("w", 10, 11)]
    nesting = nest(Trace.from_rows(rows).events)
    mask = np.array([True, False, True, False, False])
    assert innermost(nesting, mask).tolist() == [0, 0, 2, 2, -1]
    assert outermost(nesting, mask).tolist() == [0, 0, 0, 0, -1]
    assert smallest(nesting, np.array([5, 3, 4, 9, 7])).tolist() == [5, 3, 3, 3, 7]


def test_a_trace_without_host_rows_nests_to_nothing(build: Any) -> None:
    nesting = nest(Trace.from_rows([build.kernel("k", 0, 5)]).events)
    assert (len(nesting.rows), nesting.levels) == (0, ())
    assert innermost(nesting, np.zeros(0, dtype=bool)).tolist() == []


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20), st.integers(1, 2)), min_size=1, max_size=25)


@given(spans=SPANS)
def test_any_rows_nest(build: Any, spans: list[tuple[int, int, int]]) -> None:
    nesting = nest(Trace.from_rows([build.op("x", s, s + d, thread=t) for s, d, t in spans]).events)
    for row, parent in enumerate(nesting.parent.tolist()):
        assert nesting.start[row] <= nesting.end[row]
        if parent >= 0:
            assert nesting.track[parent] == nesting.track[row]
            assert nesting.start[parent] <= nesting.start[row]
            assert nesting.end[row] <= nesting.end[parent]
    assert sorted(np.concatenate(nesting.levels).tolist()) == list(range(len(spans)))


@given(spans=SPANS)
def test_the_innermost_row_is_the_open_one_that_started_last(build: Any, spans: list[tuple[int, int, int]]) -> None:
    nesting = nest(Trace.from_rows([build.op("x", s, s + d, thread=t) for s, d, t in spans]).events)
    times = np.arange(-1, 60)
    for thread in (1, 2):
        found = row_at(segments(nesting, thread), times)
        for time, row in zip(times.tolist(), found.tolist(), strict=True):
            opened = np.flatnonzero((nesting.track == thread) & (nesting.start <= time) & (time < nesting.end))
            assert row == (opened.max() if len(opened) else -1)


def test_nothing_is_picked_from_nothing() -> None:
    assert pick(np.array([5, 7]), np.array([1, -1, 0]), -9).tolist() == [7, -9, 5]
    assert pick(np.array([], dtype=np.int64), np.array([-1, -1]), -9).tolist() == [-9, -9]


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_distinct_times_are_in_order(runs: list[list[int]]) -> None:
    found = distinct(*(np.array(run, dtype=np.int64) for run in runs))
    assert found.tolist() == sorted(set().union(*runs))
