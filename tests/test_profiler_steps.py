"""The windows of the recorded steps on the host and on the device."""

from typing import Any

import numpy as np
import pytest

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.nesting import nest
from qrprof.profiler.steps import Steps, Windows, find_steps, weight_at
from qrprof.profiler.trace import Trace
from qrprof.profiler.work import join


def steps_of(rows: list[dict[str, Any]], run: Any) -> Steps:
    trace = Trace.from_rows(rows)
    return find_steps(trace, run, join(trace, nest(trace.events)))


def spans(windows: Windows) -> list[tuple[int, int]]:
    return list(zip(windows.start.tolist(), windows.end.tolist(), strict=True))


def test_marks_bound_the_steps_and_the_record_weighs_them(build: Any) -> None:
    rows = [build.mark(4, 100), build.mark(5, 200), build.mark(6, 500), build.op("x", 0, 600, thread=2)]
    steps = steps_of(rows, build.run(weights={4: 0.9, 5: 0.1}))
    assert spans(steps.host) == [(100, 200), (200, 500)]
    assert steps.host.weight.tolist() == pytest.approx([0.9, 0.1])
    assert steps.thread == 1


def test_steps_that_the_record_does_not_list_do_not_count(build: Any) -> None:
    rows = [build.mark(n, 100 * n) for n in range(1, 5)]
    steps = steps_of(rows, build.run(weights={1: 0.3, 3: 0.3}))
    assert spans(steps.host) == [(100, 200), (300, 400)]
    assert steps.host.weight.tolist() == pytest.approx([0.5, 0.5])


def test_marks_that_do_not_follow_each_other_bound_no_step(build: Any) -> None:
    rows = [build.mark(1, 100), build.mark(2, 200), build.mark(7, 700), build.mark(8, 800)]
    assert spans(steps_of(rows, build.run()).host) == [(100, 200), (700, 800)]


def test_without_marks_profiler_steps_bound_the_steps(build: Any) -> None:
    rows = [build.note("ProfilerStep#2", 10, 90, thread=3), build.note("ProfilerStep#3", 100, 180, thread=3)]
    steps = steps_of(rows, build.run())
    assert spans(steps.host) == [(10, 100), (100, 180)]
    assert steps.host.weight.tolist() == [0.5, 0.5]
    assert steps.thread == 3


def test_a_single_mark_bounds_nothing(build: Any) -> None:
    rows = [build.mark(0, 50), build.note("ProfilerStep#1", 10, 90)]
    assert spans(steps_of(rows, build.run()).host) == [(10, 90)]


def test_without_any_boundary_the_whole_trace_is_one_step_of_the_busiest_thread(build: Any) -> None:
    rows = [
        build.op("x", 10, 20, thread=1),
        build.op("y", 30, 60, thread=2),
        build.note("long", 5, 70, thread=1),
        build.launch(1, 12, 13),
        build.kernel("k", 50, 90, 1),
    ]
    steps = steps_of(rows, build.run())
    assert spans(steps.host) == spans(steps.device) == [(5, 90)]
    assert steps.thread == 2


@pytest.mark.parametrize("rows", [[], [{"kind": "op", "name": "x", "start": 5, "end": 5}]])
def test_a_trace_without_time_is_refused(build: Any, rows: list[dict[str, Any]]) -> None:
    with pytest.raises(QrprofError, match="20260101-000000-train holds no time"):
        steps_of(rows, build.run())


def test_the_device_boundary_waits_for_the_work_launched_before_the_mark(build: Any) -> None:
    rows = [
        build.launch(1, 80, 85),
        build.mark(0, 100),
        build.launch(2, 110, 115),
        build.mark(1, 200),
        build.launch(3, 210, 215),
        build.mark(2, 300),
        build.kernel("before", 90, 400, 1),
        build.kernel("first", 400, 900, 2),
        build.kernel("second", 900, 950, 3),
    ]
    assert spans(steps_of(rows, build.run()).device) == [(400, 900), (900, 950)]


def test_the_device_boundary_is_never_before_the_mark(build: Any) -> None:
    rows = [build.mark(0, 100), build.launch(1, 110, 115), build.kernel("k", 120, 130, 1), build.mark(1, 200)]
    assert spans(steps_of(rows, build.run()).device) == [(100, 200)]


def test_a_late_stream_moves_the_boundary_though_others_are_done(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.launch(1, 10, 11),
        build.launch(2, 12, 13),
        build.mark(1, 100),
        build.launch(3, 110, 111),
        build.mark(2, 200),
        build.kernel("slow copy", 20, 170, 1, stream=8),
        build.kernel("k", 20, 50, 2),
        build.kernel("k", 120, 130, 3),
    ]
    assert spans(steps_of(rows, build.run()).device) == [(0, 170), (170, 200)]


def test_work_without_a_launch_counts_as_launched_with_the_work_before_it_on_its_stream(build: Any) -> None:
    rows = [
        build.mark(0, 100),
        build.launch(1, 110, 111),
        build.mark(1, 200),
        build.launch(2, 210, 211),
        build.mark(2, 300),
        build.kernel("of the step before", 90, 250, 0),
        build.kernel("first", 250, 280, 1),
        build.kernel("lost", 280, 310, 0),
        build.kernel("second", 310, 400, 2),
        # its own stream has no launch: in order of start among all, it follows `of the step before`
        build.kernel("elsewhere", 120, 260, 0, stream=9),
    ]
    assert spans(steps_of(rows, build.run()).device) == [(260, 310), (310, 400)]


def test_where_no_launch_is_in_the_file_work_counts_from_its_start(build: Any) -> None:
    rows = [
        build.mark(0, 100),
        build.mark(1, 200),
        build.mark(2, 300),
        build.kernel("a", 90, 150),
        build.kernel("b", 150, 220),
        build.kernel("c", 230, 240),
    ]
    assert spans(steps_of(rows, build.run()).device) == [(150, 220), (220, 300)]


def test_weight_at_is_zero_outside_the_windows() -> None:
    windows = Windows(np.array([10, 30]), np.array([20, 40]), np.array([0.75, 0.25]))
    times = np.array([9, 10, 19, 20, 29, 30, 39, 40])
    assert weight_at(windows, times).tolist() == [0, 0.75, 0.75, 0, 0, 0.25, 0.25, 0]
    assert weight_at(windows.only(np.array([False, False])), times).tolist() == [0.0] * 8


def test_a_step_number_is_digits_alone(build: Any) -> None:
    rows = [build.note("ProfilerStep#3 (warmup)", 0, 10), build.note("ProfilerStep#4", 10, 30)]
    assert spans(steps_of(rows, build.run()).host) == [(10, 30)]


def test_boundaries_without_a_whole_step_are_refused(build: Any) -> None:
    empty = [build.note("ProfilerStep#3", 10, 10), build.op("x", 0, 20)]
    apart = [build.mark(1, 0), build.mark(5, 50), build.op("x", 0, 60)]
    for rows in (empty, apart):
        with pytest.raises(QrprofError, match="no whole step"):
            steps_of(rows, build.run())


def test_nested_ops_count_once_for_the_busiest_thread(build: Any) -> None:
    deep = [build.op("x", 0, 40, thread=1) for _ in range(3)]
    assert steps_of([*deep, build.op("y", 0, 50, thread=2)], build.run()).thread == 2
