"""What a viewport shows of a lane's spans: busy time, counts, names, and how much is looked at for it."""

import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.profiler import units
from qrprof.profiler.facts import find_facts
from qrprof.profiler.gaps import find_idle
from qrprof.profiler.trace import Trace
from qrprof.tui.app.timeline_lanes import find_timeline
from qrprof.tui.app.timeline_model import SHORTEST_NS, Columns, Lane, Tally, Timeline, Viewport, around, mark
from qrprof.tui.app.widgets.ruler import APART, tick_ns

Interval = tuple[int, int]


def stream(*spans: Interval) -> Lane:
    """A lane of disjoint spans, named 0, 1, 2, ..."""
    start, end = (np.array(times, dtype=np.int64) for times in zip(*sorted(spans), strict=True))
    order = np.arange(len(spans))
    long = np.flatnonzero(end > start)
    return Lane("stream 7", start, end, order, order, start[long], end[long], long)


def shown(lane: Lane, view: Viewport, columns: int) -> Columns:
    return lane.columns(view.edges(columns), Tally())


def timeline(rows: Sequence[dict[str, Any]]) -> Timeline:
    facts = find_facts(Trace.from_rows(rows))
    return find_timeline(facts, find_idle(facts, None))


def lane_called(found: Timeline, label: str) -> Lane:
    return next(lane for lane in found.lanes if lane.label == label)


def test_columns_of_a_stream() -> None:
    found = shown(stream((0, 10), (15, 20), (20, 22), (38, 38)), Viewport(0, 40), 4)
    assert found.busy.tolist() == [10, 5, 2, 0]
    assert found.share.tolist() == [1.0, 0.5, 0.2, 0.0]
    assert found.count.tolist() == [1, 1, 1, 1]
    assert found.span.tolist() == [0, 1, 2, 3]  # that of no duration too


def test_the_span_that_has_most_of_a_column_is_named() -> None:
    lane = stream((0, 3), (3, 8), (8, 9), (9, 40), (40, 41), (41, 44), (44, 50))
    assert shown(lane, Viewport(0, 50), 5).span.tolist() == [1, 3, 3, 3, 6]
    assert lane.at(np.array([40, 44])) == 5
    assert lane.at(np.array([60, 64])) == -1


def test_nested_ops_show_the_innermost_one_and_the_time_of_the_outer() -> None:
    found = timeline(
        [
            {"kind": "op", "name": "outer", "start": 0, "end": 100, "track": 1},
            {"kind": "op", "name": "inner", "start": 20, "end": 60, "track": 1},
        ]
    )
    lane = lane_called(found, "thread 1")
    columns = shown(lane, Viewport(0, 100), 5)
    assert [found.names[lane.name[span]] for span in columns.span] == ["outer", "inner", "inner", "outer", "outer"]
    assert columns.busy.tolist() == [20] * 5
    assert columns.count.tolist() == [1, 2, 2, 1, 1]


def test_lanes_of_a_run(build: Any) -> None:
    found = timeline(
        [
            build.mark(1, 0),
            build.note("forward", 10, 90_000),
            build.op("aten::mm", 1000, 3000),
            build.launch(5, 1500, 2000),
            build.kernel("gemm", 4000, 20_000, 5),
            build.op("aten::add", 60_000, 70_000, thread=2),
            build.launch(6, 61_000, 62_000, thread=2),
            build.kernel("add", 65_000, 66_000, 6, stream=9),
            build.mark(2, 100_000),
        ]
    )
    assert [lane.label for lane in found.lanes] == ["gaps", "stream 7", "stream 9", "thread 1", "ranges 1", "thread 2"]
    assert (found.whole.start, found.steps) == (0, ((1, 0),))
    gaps, first = found.lanes[0], lane_called(found, "stream 7")
    assert gaps.start.tolist() == [0, 20_000, 66_000]
    assert [found.names[code] for code in gaps.name] == ["launch", "host", "host"]
    assert [found.keys[code] for code in first.key] == ["aten::mm"]
    assert [found.keys[code] for code in gaps.key] == ["gap:launch", "gap:host", "gap:host"]
    ranges = lane_called(found, "ranges 1")
    assert [found.names[code] for code in ranges.name] == ["forward"]  # not the marks of the steps


def test_a_run_without_a_device_has_no_gaps(build: Any) -> None:
    found = timeline([build.op("aten::mm", 0, 5000)])
    assert (found.gap_lanes, [lane.label for lane in found.lanes]) == (0, ["thread 1"])


def test_marks_of_a_name_are_counted_in_view_and_stepped_through() -> None:
    lane = stream((0, 10), (20, 30), (40, 50), (60, 60))
    found = Timeline((lane, lane), 0, tuple("abab"), tuple("wxyz"), Viewport(0, 100), ())
    marked = mark(found, np.array([False, True, False, True]))
    assert (marked.count, marked.inside(Viewport(0, 60)), marked.inside(Viewport(0, 61))) == (4, 2, 4)
    assert marked.lanes[0].counts(Viewport(0, 100).edges(10), Tally()).tolist() == [0, 0, 1, 0, 0, 0, 1, 0, 0, 0]
    places = [marked.step(20, 1), marked.step(60, 1), marked.step(20, -1)]
    assert [marked.start[place] for place in places] == [60, 20, 60]
    assert mark(found, np.array([False, False, False, True]), by_key=True).start.tolist() == [60, 60]


# --- viewports


def test_zoom_pan_fit() -> None:
    whole = Viewport(0, 1_000_000)
    view = whole.zoomed(0.5)
    assert (view.start, view.end) == (250_000, 750_000)
    assert whole.zoomed(0.5, 0.0) == Viewport(0, 500_000)
    assert view.moved(0.25) == Viewport(375_000, 875_000)
    assert view.moved(5).within(whole) == Viewport(500_000, 1_000_000)
    assert view.zoomed(8).within(whole) == whole
    assert view.zoomed(1e-9).within(whole) == Viewport(499_500, 500_500)
    assert view.centred(0, 100_000).within(whole) == Viewport(0, 500_000)
    assert around(400_000, 480_000) == Viewport(390_000, 490_000)


@pytest.mark.parametrize(
    ("ns", "step", "text"),
    [
        (0, 10**6, "0 ms"),
        (12_345_678, 10**6, "12 ms"),
        (12_345_678, 10**3, "12.346 ms"),
        (12_345_678, 1, "12.345678 ms"),
        (12_345_678, 20, "12.34568 ms"),
        (1_500_000_000, 5 * 10**8, "1,500 ms"),
        (75 * 10**9, 2 * 10**9, "75 s"),
    ],
)
def test_a_moment_has_the_digits_of_the_steps_between_ticks(ns: int, step: int, text: str) -> None:
    assert units.moment(ns, step) == text


@given(st.integers(1, 10**15), st.integers(1, 400))
def test_ticks_are_apart_and_round(ns: int, columns: int) -> None:
    step = tick_ns(Viewport(0, ns), columns)
    assert step * columns >= APART * ns or step == 1
    assert str(step).rstrip("0") in ("1", "2", "5")


@given(
    start=st.integers(0, 10**15),
    ns=st.integers(2 * SHORTEST_NS, 10**12),
    at=st.floats(0, 1),
    by=st.sampled_from([0.5, 0.75, 2.0]),
)
def test_zooming_in_and_out_again_returns(start: int, ns: int, at: float, by: float) -> None:
    view = Viewport(start, start + ns)
    back = view.zoomed(by, at).zoomed(1 / by, at)
    assert abs(back.start - view.start) <= 2
    assert abs(back.end - view.end) <= 2


@given(st.integers(0, 10**6), st.integers(SHORTEST_NS, 10**6), st.integers(1, 400))
def test_edges_cut_all_of_a_viewport(start: int, ns: int, columns: int) -> None:
    edges = Viewport(start, start + ns).edges(columns)
    assert (edges[0], edges[-1], len(edges)) == (start, start + ns, columns + 1)
    assert (np.diff(edges) > 0).all()


# --- any spans


@st.composite
def spans(draw: st.DrawFn) -> list[Interval]:
    """Disjoint ones, some of no duration."""
    lengths = draw(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 5000)), min_size=1, max_size=40))
    found, now = [], 0
    for pause, ns in lengths:
        found.append((now + pause, now + pause + ns))
        now += pause + max(ns, 1)
    return found


views = st.tuples(st.integers(-2000, 150_000), st.integers(SHORTEST_NS, 200_000))


@given(spans(), views, st.integers(1, 200))
def test_busy_time_of_all_columns_is_that_of_the_spans_in_view(
    found: list[Interval], view: Interval, columns: int
) -> None:
    window = Viewport(view[0], sum(view))
    busy = shown(stream(*found), window, columns).busy
    assert busy.sum() == sum(max(min(end, window.end) - max(start, window.start), 0) for start, end in found)
    assert (busy >= 0).all()


@given(spans(), views, st.integers(1, 200))
def test_every_span_is_seen_and_counted(found: list[Interval], view: Interval, columns: int) -> None:
    window = Viewport(view[0], sum(view))
    edges = window.edges(columns).tolist()
    got = shown(stream(*found), window, columns)
    for column, (begin, end) in enumerate(pairwise(edges)):
        there = {
            number: min(last, end) - max(first, begin)
            for number, (first, last) in enumerate(sorted(found))
            if first < end and max(last, first + 1) > begin
        }
        assert got.count[column] == len(there)
        if not there:
            assert got.span[column] == -1
        else:
            assert there[int(got.span[column])] == max(there.values())


@st.composite
def host_rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of one thread that nest, overlap or touch."""
    drawn = st.tuples(st.integers(0, 50_000), st.integers(0, 20_000))
    times = draw(st.lists(drawn, min_size=1, max_size=25).filter(lambda found: any(ns for _, ns in found)))
    return [
        {"kind": "op", "name": f"op{number % 5}", "start": start, "end": start + ns, "track": 1}
        for number, (start, ns) in enumerate(times)
    ]


@given(host_rows(), views, st.integers(1, 120))
def test_busy_time_of_nested_rows_is_their_union(rows: list[dict[str, Any]], view: Interval, columns: int) -> None:
    window = Viewport(view[0], sum(view))
    lane = lane_called(timeline(rows), "thread 1")
    busy = shown(lane, window, columns).busy
    union, reached = 0, window.start
    for start, end in zip(lane.start.tolist(), lane.end.tolist(), strict=True):
        union += max(min(end, window.end) - max(start, reached), 0)
        reached = max(reached, min(end, window.end))
    assert busy.sum() == union


# --- work


@pytest.fixture(scope="module", params=[1000, 200_000])
def long_lane(request: pytest.FixtureRequest) -> Lane:
    draw = np.random.default_rng(0)
    start, end = np.cumsum(draw.integers(1, 4000, 2 * request.param)).reshape(-1, 2).T
    order = np.arange(request.param)
    return Lane("stream 7", start, end, order, order, start, end, order)


@pytest.mark.parametrize("by", [1.0, 0.3, 0.01])
def test_a_frame_looks_at_few_spans_however_many_there_are(long_lane: Lane, by: float) -> None:
    columns, depth = 200, len(long_lane.start).bit_length()
    view = Viewport(int(long_lane.start[0]), int(long_lane.end[-1])).zoomed(by, 0.4)
    shown(long_lane, view, columns)  # sorts, once
    tally = Tally()
    tracemalloc.start()
    long_lane.columns(view.edges(columns), tally)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert tally.looked <= 12 * (columns + 1) * (depth + 1)
    assert peak < 300 * 8 * columns  # no array of the frame is as long as the lane
