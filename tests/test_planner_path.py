"""The critical path: exact answers, lengths that sum to the step, and HTA's own path of the same trace."""

import gzip
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qrprof.planner.replay.changes import change_items, unchanged
from qrprof.planner.replay.model import Model, model_of, step_of, times_of
from qrprof.planner.replay.path import BOUND_BY, WHAT, CriticalPath, by_bound, by_op, find_path
from qrprof.profiler.events import KERNEL, OP, RUNTIME
from qrprof.profiler.facts import find_facts
from qrprof.profiler.readers import kineto
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.trace import Trace

DATA = Path(__file__).parent / "data"
PUBLIC = Path(os.environ.get("QRPROF_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
OWN = sorted(DATA.glob("own_h200_*.json.gz"))
OTHERS = [path for path in sorted(PUBLIC.glob("*.json.gz")) if not path.name.startswith("own_")]
HTA, GOLDEN = (PUBLIC / f"hta_a100_simple_add{end}.json.gz" for end in ("", "_GOLDEN_cp_overlay"))
US = 1000
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

Rows = list[dict[str, Any]]


def path_of(rows: Rows, run: RunInfo | None = None) -> CriticalPath:
    return find_path(model_of(find_facts(Trace.from_rows(in_us(rows)), run), run))


def in_us(rows: Rows) -> Rows:
    """Rows whose times are us, and marks of no length."""
    return [row | {"start": US * row["start"], "end": US * (row["end"] - is_mark(row))} for row in rows]


def is_mark(row: dict[str, Any]) -> bool:
    return str(row["name"]).startswith("qrprof.step#")


def listed(path: CriticalPath, *columns: str) -> list[tuple[Any, ...]]:
    """start and end in us, and these columns."""
    rows = path.rows.assign(start=path.rows["start"] / US, end=path.rows["end"] / US)
    return list(rows[["start", "end", *columns]].itertuples(index=False, name=None))


# --- exact answers


def waiting_step(build: Any, number: int, begin: int) -> Rows:
    """A kernel of 500 us that the host waits for, and a wait that finds the device done; all at the usual delays."""
    return [
        build.mark(number, begin),
        build.op("aten::mm", begin + 10, begin + 30),
        build.launch(number + 1, begin + 15, begin + 20),
        build.kernel("gemm", begin + 22, begin + 522, number + 1),
        build.call("cudaStreamSynchronize", begin + 100, begin + 527),
        build.call("cudaStreamSynchronize", begin + 540, begin + 542),
    ]


def test_a_step_that_waits_for_its_kernel(build: Any) -> None:
    path = path_of([*waiting_step(build, 0, 0), build.mark(1, 600)])
    assert listed(path, "what", "bound", "name", "op") == [
        (0, 10, "python or pause", "host", "", ""),
        (10, 15, "host op", "host", "aten::mm", "aten::mm"),
        (15, 20, "host call", "launch", "cudaLaunchKernel", "aten::mm"),
        (20, 22, "launch delay", "launch", "gemm", "aten::mm"),
        (22, 522, "kernel", "device compute", "gemm", "aten::mm"),
        (522, 527, "return from a wait", "sync", "cudaStreamSynchronize", "cudaStreamSynchronize"),
        (527, 540, "python or pause", "host", "", ""),
        (540, 542, "host call", "sync", "cudaStreamSynchronize", "cudaStreamSynchronize"),
        (542, 600, "python or pause", "host", "", ""),
    ]
    assert path.rows[["thread", "device", "stream"]].to_numpy().tolist() == [
        *[[1, -1, -1]] * 3,
        *[[-1, 0, 7]] * 2,
        *[[1, -1, -1]] * 4,
    ]
    assert path.step_ns == 600 * US
    assert (path.rows["ns"] == path.rows["to_ns"] - path.rows["from_ns"]).all()


def test_sums(build: Any) -> None:
    path = path_of([*waiting_step(build, 0, 0), build.mark(1, 600)])
    bounds = by_bound(path).groupby("bound", sort=False)["ns"].sum() / US
    assert bounds.to_dict() == {"device compute": 500, "host": 86, "launch": 7, "sync": 7}
    parts = by_bound(path)[["bound", "what", "stretches"]].itertuples(index=False, name=None)
    assert ("host", "python or pause", 3) in list(parts)
    ops = by_op(path)[["op", "bound", "ns"]].itertuples(index=False, name=None)
    assert list(ops)[:3] == [
        ("aten::mm", "device compute", 500 * US),
        ("", "host", 81 * US),
        ("aten::mm", "launch", 7 * US),
    ]


def test_queued_kernels_follow_each_other_and_what_is_late_is_a_residual(build: Any) -> None:
    rows = [build.mark(0, 0), build.op("aten::mm", 0, 50)]
    rows += [build.launch(n, 10 * n, 10 * n + 5) for n in range(1, 6)]
    begins = [17, 118, 219, 320, 471]  # 1 us after each other, and the last 50 us late
    rows += [build.kernel("gemm", start, start + 100, n) for n, start in enumerate(begins, start=1)]
    path = path_of([*rows, build.mark(1, 60)])
    told = listed(path, "what", "bound")
    assert told[3:5] == [(17, 117, "kernel", "device compute"), (117, 118, "pause between kernels", "launch")]
    assert told[-3:] == [
        (420, 421, "pause between kernels", "launch"),
        (421, 471, "unexplained residual", "unexplained"),
        (471, 571, "kernel", "device compute"),
    ]
    assert path.step_ns == 571 * US


def test_work_of_another_stream_and_a_collective(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.op("aten::mm", 0, 40),
        build.launch(1, 5, 10),
        build.launch(2, 20, 25),
        build.kernel("ncclDevKernel_AllReduce", 12, 212, 1, 20),
        build.kernel("gemm", 213, 313, 2, 7),
        build.mark(1, 50),
    ]
    path = path_of(rows)
    assert listed(path, "what", "bound", "stream")[2:] == [
        (10, 12, "launch delay", "launch", 20),
        (12, 212, "communication", "communication", 20),
        (212, 213, "wait for another stream", "sync", 7),
        (213, 313, "kernel", "device compute", 7),
    ]


def test_a_backward_pass_on_another_thread_and_a_loader(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.note(LOADER, 10, 110),
        build.op("aten::mul", 110, 120),
        build.op("autograd::engine::evaluate_function: MulBackward0", 130, 180, 2),
        build.op("aten::mul", 140, 160, 2),
        build.op("aten::add_", 200, 210),
        build.mark(1, 210),
    ]
    path = path_of(rows)
    node = "autograd::engine::evaluate_function: MulBackward0"
    assert listed(path, "what", "bound", "name", "phase", "thread") == [
        (0, 10, "python or pause", "host", "", "forward", 1),
        (10, 110, "data loading", "data", LOADER, "loader", 1),
        (110, 120, "host op", "host", "aten::mul", "forward", 1),
        (120, 130, "python or pause", "host", "", "forward", 1),
        (130, 140, "host op", "host", node, "backward", 2),
        (140, 160, "host op", "host", "aten::mul", "backward", 2),
        (160, 180, "host op", "host", node, "backward", 2),
        (180, 200, "python or pause", "host", "", "forward", 1),
        (200, 210, "host op", "host", "aten::add_", "forward", 1),
    ]


def test_a_copy_that_blocks_its_caller_and_an_allocation(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.call("cudaMalloc", 0, 50),
        build.call("cudaMemcpyAsync", 60, 200, 1),
        build.copy("Memcpy HtoD", 80, 190, 1),
        build.call("cudaMemcpyAsync", 210, 212),
        build.mark(1, 220),
    ]
    assert listed(path_of(rows), "what", "bound", "name") == [
        (0, 50, "allocation", "host", "cudaMalloc"),
        (50, 60, "python or pause", "host", ""),
        (60, 80, "launch delay", "memory copy", "Memcpy HtoD"),
        (80, 190, "copy", "memory copy", "Memcpy HtoD"),
        (190, 200, "return from a wait", "memory copy", "cudaMemcpyAsync"),
        (200, 210, "python or pause", "host", ""),
        (210, 212, "host call", "memory copy", "cudaMemcpyAsync"),
        (212, 220, "python or pause", "host", ""),
    ]


def test_a_clock_that_runs_ahead_leaves_no_time_twice(build: Any) -> None:
    rows = [*waiting_step(build, 0, 0), build.mark(1, 600)]
    rows[3] |= {"end": 527.5}
    told = listed(path_of(rows), "what")
    assert told[4:6] == [(22, 527, "kernel"), (527, 540, "python or pause")]


def test_steps_count_by_their_weights_and_are_cut_at_their_boundaries(build: Any) -> None:
    rows = [*waiting_step(build, 0, 0), *waiting_step(build, 1, 600), build.mark(2, 1300)]
    path = path_of(rows, build.run(weights={0: 0.75, 1: 0.25}))
    assert path.step_ns == pytest.approx((0.75 * 600 + 0.25 * 700) * US)
    steps = path.rows.assign(ns=path.rows["to_ns"] - path.rows["from_ns"]).groupby("step")["ns"].sum()
    assert (steps / US).tolist() == [600, 700]
    kernels = path.rows[path.rows["what"] == "kernel"]
    assert (kernels["ns"] / US).tolist() == [375, 125]
    assert 600 in path.rows["start"].to_numpy() / US  # a pause over the boundary is two


def test_the_path_is_that_of_the_calibrated_replay(build: Any) -> None:
    rows = [*waiting_step(build, 0, 0), *waiting_step(build, 1, 600), build.mark(2, 1200)]
    run = build.run([560 * US] * 4, weights={0: 0.5, 1: 0.5})
    path = path_of(rows, run)
    assert path.step_ns == pytest.approx(560 * US, rel=1e-3)
    assert path.rows["ns"].sum() == path.step_ns
    sums = by_bound(path).groupby("bound")["ns"].sum() / US
    assert sums["device compute"] == 500
    assert sums["host"] < 86
    assert path.rows["start"].tolist() == path_of(rows).rows["start"].tolist()  # what is drawn is the record


# --- lengths sum to the step


def check(model: Model) -> None:
    """The stretches of each step follow each other without a hole, and sum to the replayed step."""
    path, graph = find_path(model), model.graph
    rows = path.rows
    assert path.step_ns == pytest.approx(step_of(model, unchanged(graph)), rel=1e-9)
    assert path.step_ns == pytest.approx(model.base_ns, rel=1e-9)
    assert (rows["ns"] > 0).all()
    assert (rows["end"] >= rows["start"]).all()
    assert set(rows["what"]) <= set(WHAT)
    assert set(rows["bound"]) <= set(BOUND_BY)
    for sums in (by_bound(path), by_op(path)):
        assert sums["ns"].sum() == pytest.approx(path.step_ns, rel=1e-9)
    times = times_of(model, unchanged(graph))[graph.bounds].reshape(2, -1).T.tolist()
    for number, (begin, end) in zip(graph.facts.steps.numbers.tolist(), times, strict=True):
        own = rows[rows["step"] == number]
        spans = list(zip(own["from_ns"], own["to_ns"], strict=True))
        holes = sum(abs(b - a) for (_, a), (b, _) in pairwise([(begin, begin), *spans, (end, end)]))
        assert holes <= 1e-9 * abs(end)
    drawn = rows[rows["end"] > rows["start"]]
    assert (drawn["start"].to_numpy()[1:] >= drawn["end"].to_numpy()[:-1]).all()


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    times = st.tuples(st.integers(0, 200), st.integers(0, 40))
    names = st.sampled_from(["aten::a", "autograd::engine::evaluate_function: X", "aten::b"])
    calls = st.sampled_from(["cudaLaunchKernel", "cudaStreamSynchronize", "cudaMemcpyAsync", "cudaMalloc"])
    rows: Rows = [
        {"kind": OP, "name": draw(names), "start": at, "end": at + length, "track": draw(st.integers(1, 2))}
        for at, length in draw(st.lists(times, max_size=10))
    ]
    for number, (at, length) in enumerate(draw(st.lists(times, max_size=12)), start=1):
        call = {"kind": RUNTIME, "start": at, "end": at + length, "track": draw(st.integers(1, 2))}
        rows.append(call | {"name": draw(calls), "correlation": number})
        late, ns = draw(st.integers(-2, 60)), draw(st.integers(0, 50))
        work = {"device": 0, "track": draw(st.sampled_from([7, 20])), "correlation": number}
        rows.append({"kind": KERNEL, "name": "k", "start": at + late, "end": at + late + ns} | work)
    rows += [
        {"kind": "annotation", "name": f"qrprof.step#{n}", "start": at, "end": at + 1, "track": 1}
        for n, at in enumerate(sorted(draw(st.sets(st.integers(0, 250), max_size=4))))
    ]
    rows.append({"kind": KERNEL, "name": "k", "start": 0, "end": 1, "device": 0, "track": 7})
    return Trace.from_rows([row | {"start": 500 * row["start"], "end": 500 * row["end"]} for row in rows])


@settings(max_examples=150)
@given(trace=traces(), share=st.none() | st.floats(0.3, 1.2))
def test_lengths_sum_to_the_step_of_any_trace(build: Any, trace: Trace, share: float | None) -> None:
    weights = {0: 0.7, 1: 0.2, 2: 0.1}
    facts = find_facts(trace, build.run(weights=weights))
    recorded = float(((facts.steps.device.end - facts.steps.device.start) * facts.steps.device.weight).sum())
    run = build.run([int(share * recorded)] if share and share * recorded >= 1 else [], weights=weights)
    check(model_of(facts, run))


@settings(max_examples=60)
@given(trace=traces())
def test_longer_work_of_the_path_makes_the_last_boundary_later_by_as_much(build: Any, trace: Trace) -> None:
    model = model_of(find_facts(trace, build.run(weights={0: 1.0})))
    rows, graph = find_path(model).rows, model.graph
    on_path = rows[rows["what"].isin(["kernel", "copy", "memset"])]
    mask = np.zeros(len(graph.durations), dtype=bool)
    mask[on_path["item"]] = True
    before, after = (times_of(model, changes)[graph.bounds[-1]] for changes in (unchanged(graph), double(graph, mask)))
    assert after - before >= (on_path["to_ns"] - on_path["from_ns"]).sum() - 1e-3


def double(graph: Any, items: Any) -> Any:
    return change_items(graph, items, 2.0)


@pytest.mark.parametrize("path", [*OWN, *OTHERS], ids=lambda path: path.name.removesuffix(".json.gz"))
def test_lengths_sum_to_the_step_of_recorded_traces(build: Any, path: Path) -> None:
    facts = find_facts(kineto.read(path))
    plain = model_of(facts)
    check(plain)
    check(model_of(facts, build.run([int(0.9 * plain.recorded_ns)])))


# --- known answers of recorded traces


def h200(name: str) -> dict[str, float]:
    """Shares of the step by what bounds it."""
    path = find_path(model_of(find_facts(kineto.read(DATA / f"own_h200_{name}.json.gz"))))
    sums = by_bound(path).groupby("bound")["ns"].sum()
    return {str(bound): ns / path.step_ns for bound, ns in sums.items()}


def test_h200_a_long_copy_is_the_path_and_the_products_beside_it_are_not() -> None:
    assert h200("two_streams_overlap")["memory copy"] == pytest.approx(0.997, abs=0.002)


def test_h200_half_of_the_loader_bound_step_is_its_loader() -> None:
    assert h200("loader_bound")["data"] == pytest.approx(0.497, abs=0.002)


def test_h200_small_layers_are_bound_by_the_host_alone_and_a_graph_by_its_kernels() -> None:
    eager, graph = h200("mlp_eager"), h200("mlp_cudagraph")
    assert eager["host"] + eager["launch"] == pytest.approx(1)
    assert graph["device compute"] == pytest.approx(0.917, abs=0.01)
    assert "host" not in graph


def test_h200_soap_is_bound_by_qr() -> None:
    path = find_path(model_of(find_facts(kineto.read(DATA / "own_h200_soap_qr.json.gz"))))
    first = by_op(path).iloc[0]
    assert (first["op"], first["bound"]) == ("aten::linalg_qr", "device compute")
    assert first["ns"] / path.step_ns == pytest.approx(0.86, abs=0.01)


# --- HTA's path of the same trace

Event = tuple[str, str, int, int]  # category, name, start, end
CATEGORIES = {
    OP: "cpu_op",
    RUNTIME: "cuda_runtime",
    KERNEL: "kernel",
    "copy": "gpu_memcpy",
    "memset": "gpu_memset",
}


@pytest.fixture(scope="module")
def ours() -> tuple[Model, CriticalPath]:
    if not HTA.exists():
        pytest.skip("no public traces")
    trace = kineto.read(HTA)
    events = trace.events  # from its first event on: its stamps count from 1970, too far for a float to keep a us
    first = events["start"].min()
    moved = events.assign(start=events["start"] - first, end=events["end"] - first)
    model = model_of(find_facts(replace(trace, events=moved, base_ns=trace.base_ns + int(first))))
    return model, find_path(model)


def hta_events(chosen: Callable[[dict[str, Any]], bool]) -> "Counter[Event]":
    with gzip.open(GOLDEN) as file:
        events = json.load(file)["traceEvents"]
    slices = [event for event in events if event["ph"] == "X" and event["cat"] in CATEGORIES.values()]
    first = min(event["ts"] for event in events if event.get("cat") == "user_annotation")
    return Counter(
        (event["cat"], event["name"], event["ts"] - first, event["ts"] + event["dur"] - first)
        for event in slices
        if chosen(event)
    )


def our_events(model: Model, rows: Sequence[int], items: Sequence[int]) -> "Counter[Event]":
    facts = model.graph.facts
    host = facts.host.rows.iloc[sorted(set(rows))]
    columns = host[["kind", "name", "start", "end"]].itertuples(index=False, name=None)
    found = [
        (CATEGORIES[kind], name, start // US, end // US) for kind, name, start, end in columns if kind in CATEGORIES
    ]
    work = facts.work
    found += [
        (CATEGORIES[work.kind[item]], work.name[item], int(work.began[item]) // US, int(work.end[item]) // US)
        for item in sorted(set(items))
    ]
    return Counter(found)


def by_category(events: "Counter[Event]") -> dict[str, int]:
    counts: Counter[str] = Counter()
    for event, count in events.items():
        counts[event[0]] += count
    return dict(counts)


def on_our_path(model: Model, path: CriticalPath) -> "Counter[Event]":
    """Events that have time of their own on it."""
    rows = path.rows
    works = rows["what"].isin(["kernel", "copy", "memset"])
    hosts = (rows["item"] < 0) & (rows["row"] >= 0)
    return our_events(model, rows["row"][hosts].tolist(), rows["item"][works].tolist())


def test_hta_has_the_same_path_but_for_27_events(ours: tuple[Model, CriticalPath]) -> None:
    here, theirs = on_our_path(*ours), hta_events(lambda event: bool(event["args"].get("critical")))
    everything = hta_events(lambda event: True)
    assert not here - everything
    assert by_category(here & theirs) == {"cpu_op": 352, "cuda_runtime": 243, "gpu_memcpy": 16}
    assert by_category(here - theirs) == {"cpu_op": 7, "cuda_runtime": 7}
    assert by_category(theirs - here) == {"cuda_runtime": 7, "kernel": 5, "gpu_memset": 1}
    assert by_category(everything - (here | theirs)) == {"kernel": 74, "cuda_runtime": 74, "gpu_memset": 2}


def test_hta_marks_the_calls_of_copies_that_begin_inside_them(ours: tuple[Model, CriticalPath]) -> None:
    """Our path leaves such a call at its start as theirs does; what lies between is the copy's launch delay."""
    model, path = ours
    theirs = hta_events(lambda event: bool(event["args"].get("critical"))) - on_our_path(model, path)
    calls = Counter({event: count for event, count in theirs.items() if event[0] == "cuda_runtime"})
    assert {event[1] for event in calls} == {"cudaMemcpyAsync"}
    delays = path.rows[path.rows["what"] == "launch delay"]
    assert not calls - our_events(model, delays["row"].tolist(), [])


def test_hta_takes_no_time_between_ops_and_so_goes_over_kernels_that_were_done_early(
    ours: tuple[Model, CriticalPath],
) -> None:
    """The last wait of the model found the device done: a pause of 220 us before it is what our path goes over."""
    model, path = ours
    theirs = hta_events(lambda event: bool(event["args"].get("critical"))) - on_our_path(model, path)
    work = [event for event in theirs if event[0] != "cuda_runtime"]
    assert (min(event[2] for event in work), done := max(event[3] for event in work)) == (41_140_619, 41_141_136)
    (wait,) = [event for event in hta_events(lambda event: True) if event[2] == 41_141_371]
    assert wait[1] == "cudaDeviceSynchronize"
    assert wait[2] - done == 235
    pause = path.rows[path.rows["end"] == wait[2] * US].iloc[0]
    assert (pause["what"], pause["ns"] / US) == ("python or pause", 220)


def test_hta_ends_with_its_annotation(ours: tuple[Model, CriticalPath]) -> None:
    theirs = hta_events(lambda event: bool(event["args"].get("critical")))
    late = [event for event in on_our_path(*ours) - theirs if event[2] > 41_141_371]
    assert late == [("cuda_runtime", "cudaDeviceSynchronize", 41_579_883, 41_579_901)]
    assert max(event[3] for event in theirs) == 41_578_648
