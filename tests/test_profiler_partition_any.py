"""What holds for the partition of any trace."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.profiler.nesting import nest
from qrprof.profiler.steps import Windows
from qrprof.profiler.sweep import sweep
from qrprof.profiler.trace import Trace
from qrprof.profiler.work import join

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
NODE = "autograd::engine::evaluate_function: MmBackward0"


@st.composite
def traces(draw: st.DrawFn) -> list[dict[str, Any]]:
    span = st.tuples(st.integers(0, 200), st.integers(0, 60))
    host = st.tuples(
        st.sampled_from(
            [
                ("op", "aten::mm"),
                ("op", "aten::linalg_qr"),
                ("op", NODE),
                ("annotation", LOADER),
                ("annotation", "Optimizer.step#AdamW.step"),
                ("annotation", "mine"),
                ("runtime", "cudaLaunchKernel"),
                ("runtime", "cudaStreamSynchronize"),
                ("runtime", "cudaMalloc"),
            ]
        ),
        span,
        st.integers(1, 3),
        st.integers(0, 8),
    )
    device = st.tuples(st.sampled_from(["kernel", "copy", "memset"]), span, st.integers(7, 9), st.integers(0, 8))
    rows = [
        {"kind": kind, "name": name, "start": s, "end": s + d, "track": thread, "correlation": c}
        for (kind, name), (s, d), thread, c in draw(st.lists(host, max_size=30))
    ]
    rows += [
        {"kind": kind, "name": "k", "start": s, "end": s + d, "device": 0, "track": stream, "correlation": c}
        for kind, (s, d), stream, c in draw(st.lists(device, max_size=20))
    ]
    marks = sorted(draw(st.sets(st.integers(0, 250), max_size=4)))
    rows += [
        {"kind": "annotation", "name": f"qrprof.step#{n}", "start": at, "end": at + 1, "track": 1}
        for n, at in enumerate(marks)
    ]
    return [*rows, {"kind": "op", "name": "aten::add", "start": 0, "end": 1, "track": 1}]


@given(rows=traces(), step=st.none() | st.integers(1, 400))
def test_the_rows_are_the_whole_step(build: Any, rows: list[dict[str, Any]], step: int | None) -> None:
    parts = build.divide(rows, build.run([step] if step else [], weights={0: 0.7, 1: 0.2, 2: 0.1}))
    frame = parts.rows
    assert (frame["recorded_ns"] >= 0).all()
    assert (frame["ns"] >= 0).all()
    assert frame["recorded_ns"].sum() == pytest.approx(parts.recorded_ns)
    busy = frame.loc[frame["kind"] == "op", "recorded_ns"].sum()
    if parts.on_device:
        assert busy == pytest.approx(parts.busy_ns)
        assert parts.busy_ns + frame.loc[frame["kind"] == "gap", "recorded_ns"].sum() == pytest.approx(
            parts.recorded_ns
        )
    if step and parts.withheld is None:
        assert frame["ns"].sum() == pytest.approx(step)
    assert not frame.duplicated(["key", "op", "shapes", "dtypes", "phase", "where", "kernel"]).any()


@given(rows=traces())
def test_the_sweep_finds_the_union_of_the_work(rows: list[dict[str, Any]]) -> None:
    trace = Trace.from_rows(rows)
    busy = np.zeros(400, dtype=bool)
    for start, end in trace.device_work()[["start", "end"]].to_numpy():
        busy[start:end] = True
    windows = Windows(np.array([20, 150]), np.array([100, 180]), np.array([0.75, 0.25]))
    swept = sweep(join(trace, nest(trace.events)), windows)
    expected = 0.75 * busy[20:100].sum() + 0.25 * busy[150:180].sum()
    assert swept.ns.sum() == pytest.approx(expected)
    unused = (swept.idle.end - swept.idle.start) * swept.idle.weight
    assert unused.sum() == pytest.approx(0.75 * 80 + 0.25 * 30 - expected)
