"""What holds for the launches of any trace, and the known answers of recorded ones."""

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qrprof.profiler.launches import Launches, launches, per_step
from qrprof.profiler.partition import partition
from qrprof.profiler.readers import kineto
from qrprof.profiler.trace import Trace

DATA = Path(__file__).parent / "data"
PUBLIC = Path(os.environ.get("QRPROF_TRACES", Path(__file__).parents[1] / ".." / "shared" / "traces"))


@st.composite
def streams(draw: st.DrawFn) -> Trace:
    """Launches in order, whose work runs in order on one of two streams, or early, or is missing."""
    rows: list[dict[str, Any]] = [{"kind": "op", "name": "aten::mm", "start": -5, "end": 500, "track": 1}]
    now = 0
    for n in range(1, draw(st.integers(1, 12)) + 1):
        now += draw(st.integers(0, 20))
        length = draw(st.integers(0, 8))
        call = {"kind": "runtime", "name": "call", "start": now, "end": now + length, "track": 1, "correlation": n}
        rows.append(call)
        for _ in range(draw(st.integers(0, 3))):
            begin = now + draw(st.integers(-2, 40))
            end = begin + draw(st.integers(0, 20))
            place = {"device": draw(st.integers(0, 1)), "track": draw(st.integers(0, 1)), "correlation": n}
            rows.append({"kind": "kernel", "name": "k", "start": begin, "end": end, **place})
        now += length
    return Trace.from_rows(rows)


@settings(deadline=None, max_examples=60)
@given(trace=streams())
def test_every_launch_that_owns_work_is_a_row(build: Any, trace: Trace) -> None:
    found, parts = launches(trace), partition(trace, build.run())
    work = trace.device_work()
    assert len(found.calls) == work["correlation"].nunique()
    assert found.calls["items"].sum() == len(work)
    assert found.calls["work_ns"].sum() == (work["end"] - work["start"]).sum()
    assert (found.calls["delay_ns"] >= 0).all()
    assert found.calls["depth"].between(0, len(found.calls) - 1).all()
    assert found.recorded_ns == pytest.approx(parts.recorded_ns)
    for by in ("op", "what", "call"):
        sums = per_step(found.calls, by)
        assert sums["launches"].sum() == pytest.approx(len(found.calls))
        assert (sums["full"] + sums["empty"]).to_list() == pytest.approx(sums["launches"].to_list())
        assert (sums["full_ns"] + sums["empty_ns"]).sum() == pytest.approx(found.calls["delay_ns"].sum())
    if found.graph:
        assert 0 <= found.graph.low_ns <= found.graph.high_ns <= parts.recorded_ns - parts.busy_ns + 1e-6


@settings(deadline=None, max_examples=60)
@given(trace=streams())
def test_depth_counts_launches_one_by_one(trace: Trace) -> None:
    calls = launches(trace).calls
    for row in calls.to_dict("records"):
        stream = first_starts(trace, row["device"], row["stream"], calls)
        waiting = stream[(stream["launched"] < row["start"]) & (stream["began"] >= row["start"])]
        assert row["depth"] == len(waiting)


def first_starts(trace: Trace, device: int, stream: int, calls: pd.DataFrame) -> pd.DataFrame:
    """When each launch with work on the stream was made, and when its work there began."""
    work = trace.device_work()
    here = work[(work["device"] == device) & (work["track"] == stream)]
    began = here.groupby("correlation")["start"].min()
    runtime = trace.of_kind("runtime").set_index("correlation")["start"]
    return pd.DataFrame({"launched": runtime[began.index], "began": began})


# --- recorded traces


def h200(build: Any, name: str) -> Launches:
    times = json.loads((DATA / "own_h200.json").read_text())[name]
    unprofiled = times["unprofiled_step_ms_before"] + times["unprofiled_step_ms_after"]
    return launches(kineto.read(DATA / f"{name}.json.gz"), build.run([round(1e6 * ms) for ms in unprofiled]))


def test_h200_small_layers_would_run_as_fast_as_their_graph_does(build: Any) -> None:
    """0.99 ms launched one by one, 0.34 ms as a graph (medians; the means are 1.11 and 0.34)."""
    eager = h200(build, "own_h200_mlp_eager")
    (sums,) = per_step(eager.calls, "op").to_dict("records")
    assert (sums["op"], sums["launches"], sums["short"]) == ("aten::addmm", pytest.approx(80), pytest.approx(80))
    assert sums["empty"] == pytest.approx(44)
    graph = eager.graph
    assert graph is not None
    assert graph.low_ns < (0.99 - 0.34) * 1e6 < graph.high_ns
    assert graph.low_ns < (1.11 - 0.34) * 1e6 < graph.high_ns
    assert graph.high_ns < 1.02 * (1.11 - 0.34) * 1e6


def test_h200_a_graph_of_80_kernels_is_one_launch_and_needs_no_other_graph() -> None:
    found = launches(kineto.read(DATA / "own_h200_mlp_cudagraph.json.gz"))
    (sums,) = per_step(found.calls, "what").to_dict("records")
    assert (sums["what"], sums["launches"]) == ("cudaGraphLaunch of 80 items", pytest.approx(1))
    assert (sums["items"], sums["short"], sums["full"]) == (pytest.approx(80), pytest.approx(80), pytest.approx(1))
    assert found.graph is not None
    assert found.graph.high_ns == 0


def test_h200_qr_keeps_the_queue_full(build: Any) -> None:
    found = h200(build, "own_h200_qr_loop_8x512")
    (sums,) = per_step(found.calls, "op").to_dict("records")
    assert (sums["op"], sums["launches"], sums["full"]) == ("aten::linalg_qr", 864, 864)
    assert found.calls["depth"].max() <= 1024
    assert found.graph is not None
    assert found.graph.high_ns == 0


def test_h200_streams_have_queues_of_their_own(build: Any) -> None:
    calls = h200(build, "own_h200_two_streams_overlap").calls
    streams = calls.groupby("op")["stream"].unique()
    assert set(streams["aten::copy_"]).isdisjoint(streams["aten::mm"])
    assert calls["queue_full"].all()


@pytest.mark.parametrize(
    ("name", "made", "items"),
    [
        ("hta_a100_16rank_nccl_cudagraph_rank0", 6600, 6875),
        ("tl_mi_vllm_decode_hipgraph", 14, 434),
        ("hta_mi250_rocm62_minitoy", 16, 16),
        ("tl_b200_eager_8rank", 929, 929),
        ("hta_a100_triton_cuLaunchKernel", 1, 1),
        ("hta_cupti_range_profiler", 0, 0),
    ],
)
def test_public_traces(name: str, made: int, items: int) -> None:
    path = PUBLIC / f"{name}.json.gz"
    if not path.is_file():
        pytest.skip(f"no {name} in {PUBLIC} (QRPROF_TRACES)")
    found = launches(kineto.read(path))
    assert (len(found.calls), found.calls["items"].sum()) == (made, items)
    assert (found.graph is None) == (made == 0)
