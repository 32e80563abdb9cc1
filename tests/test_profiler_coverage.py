"""What a trace covers, and when its idle time is withheld."""

import csv
import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from qrprof.profiler.coverage import Coverage, Verdict, coverage, describe
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.events import HOST
from qrprof.profiler.facts import find_facts
from qrprof.profiler.gaps import find_idle, gaps
from qrprof.profiler.launches import launches
from qrprof.profiler.nesting import HOST_KINDS, nest
from qrprof.profiler.partition import partition
from qrprof.profiler.read import read
from qrprof.profiler.readers import kineto
from qrprof.profiler.trace import Trace, read_cache, write_cache

DATA = Path(__file__).parent / "data"
PUBLIC = Path(os.environ.get("QRPROF_TRACES", Path(__file__).parents[1] / ".." / "shared" / "traces"))


def of(*rows: dict[str, Any]) -> Coverage:
    return coverage(Trace.from_rows(rows))


def pairs(build: Any, count: int, lost: int = 0) -> list[dict[str, Any]]:
    """A step of `count` launches, the last `lost` of which have no kernel."""
    rows = [build.mark(0, 0), build.op("aten::mm", 1, 2), build.mark(1, 100 * count)]
    for n in range(count):
        rows.append(build.launch(n + 1, 100 * n + 10, 100 * n + 20))
        rows += [build.kernel("gemm", 100 * n + 30, 100 * n + 60, n + 1)] * (n < count - lost)
    return rows


def test_all_matched(build: Any) -> None:
    found = of(*pairs(build, 3))
    assert (found.in_steps.launches, found.in_steps.work) == (3, 3)
    assert found.in_steps == found.in_file
    assert (found.verdict, found.reasons, found.steps) == (Verdict.TRUSTED, (), 1)
    assert (found.inversions, found.replays, found.replays_constant) == (0, 0, None)
    assert describe(found) == "trusted: 3 launches and 3 items of device work in 1 step, all matched"


def test_both_sides_are_counted_in_the_steps_and_in_the_file(build: Any) -> None:
    found = of(
        build.launch(1, 0, 4),
        build.mark(0, 10),
        build.op("aten::mm", 11, 40),
        build.launch(2, 12, 14),
        build.launch(3, 15, 16),
        build.mark(1, 100),
        build.launch(4, 110, 112),
        build.kernel("of the step before", 5, 30, 0),
        build.kernel("lead-in", 30, 40, 1),
        build.kernel("gemm", 40, 60, 2),
        build.kernel("lost launch", 60, 80, 99),
    )
    inside, file = found.in_steps, found.in_file
    assert (inside.launches_with_work, inside.launches_without_work) == (1, 1)
    assert (inside.work_with_launch, inside.work_without_launch) == (1, 1)
    assert (file.launches_with_work, file.launches_without_work) == (2, 2)
    assert (file.work_with_launch, file.work_without_launch) == (2, 2)


def test_a_lost_launch_is_counted_once_and_only_where_a_call_says_that_it_launches(build: Any) -> None:
    found = of(
        build.mark(0, 0),
        build.call("cudaLaunchHostFunc", 1, 2, 1),
        build.call("cudaStreamIsCapturing", 2, 3, 2),
        build.call("cudaMemsetAsync", 2, 3, 7),  # of no bytes
        build.call("cudaLaunchKernel", 3, 6, 3),
        build.call("cuLaunchKernel", 4, 5, 4),  # inside the one whose kernel is there
        build.call("cudaLaunchKernelExC", 8, 9, 6),
        build.mark(1, 50),
        build.call("cudaLaunchKernel", 60, 61, 5),
        build.kernel("k", 10, 20, 3),
    )
    assert (found.in_steps.launches_with_work, found.in_steps.launches_without_work) == (1, 1)
    assert found.in_file.launches_without_work == 2


@pytest.mark.parametrize("name", ["cudaLaunchKernelExC", "hipExtModuleLaunchKernel", "INVALID", "aNewLaunchingCall"])
def test_a_launch_is_what_owns_device_work_whatever_its_name(build: Any, name: str) -> None:
    found = of(build.call(name, 0, 5, 1), build.kernel("k", 10, 20, 1), build.op("aten::mm", 0, 8))
    assert found.in_file.launches_with_work == 1
    assert found.verdict is Verdict.TRUSTED


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_breaks_off_withholds_idle_time(zipped: bool, tmp_path: Path) -> None:
    """Its first half has all of the steps, and of their work a part, all of it matched."""
    whole = gzip.decompress((DATA / "own_h200_mlp_eager.json.gz").read_bytes())
    half = whole[: len(whole) // 2]
    file = tmp_path / "half.json"
    file.write_bytes(gzip.compress(half) if zipped else half)
    trace = read(file)
    found = coverage(trace)
    assert found.steps == 3
    assert found.in_steps.launches_without_work == 0
    assert (found.verdict, found.reasons[0]) == (
        Verdict.ABSTAIN, "the file breaks off: what looks idle may be work that is not in it",
    )  # fmt: skip
    assert (gaps(trace), launches(trace).graph) == ([], None)
    write_cache(trace, tmp_path / "kept.parquet")
    again = read_cache(tmp_path / "kept.parquet")
    assert again is not None
    assert coverage(again) == found


def test_the_default_stream_of_rocm_is_a_stream(build: Any) -> None:
    rows = [build.op("aten::mm", 0, 8), build.call("hipLaunchKernel", 0, 5, 1)]
    found = of(*rows, build.kernel("k", 10, 20, 1, stream=0) | {"device": 2})
    assert found.in_steps.work_with_launch == 1


@pytest.mark.parametrize(("lost", "verdict"), [(2, "trusted"), (10, "partial"), (20, "partial"), (21, "abstain")])
def test_lost_device_work_withholds_idle_time_above_a_tenth(build: Any, lost: int, verdict: str) -> None:
    rows = pairs(build, 200, lost)
    found = of(*rows)
    assert found.verdict == verdict
    assert any("no device work" in reason for reason in found.reasons) == (verdict != "trusted")
    idle = find_idle(find_facts(Trace.from_rows(rows)), None)
    assert (idle.gaps is None) == (verdict == "abstain")
    parts = build.divide(rows, build.run([20_000]))
    assert (parts.withheld is not None) == (verdict == "abstain")


def test_a_trace_without_its_device_side_is_never_called_idle(build: Any) -> None:
    rows = pairs(build, 5, lost=5)
    trace = Trace.from_rows(rows)
    found = coverage(trace)
    assert (found.verdict, found.host_only) == ("abstain", True)
    assert describe(found) == "abstain: 5 launches and no device work: the device's side is not in the file"
    assert gaps(trace) == []
    idle = find_idle(find_facts(trace), None)
    assert (idle.gaps, idle.devices, idle.withheld) == (None, (), found.reasons[0])
    assert (launches(trace).graph, launches(trace).withheld) == (None, found.reasons[0])
    parts = build.divide(rows, build.run([500]))
    assert (parts.withheld, parts.factor) == (found.reasons[0], None)
    assert parts.rows["ns"].tolist() == parts.rows["recorded_ns"].tolist()


def test_a_trace_of_the_host_alone(build: Any) -> None:
    found = of(build.op("aten::mm", 0, 100), build.call("cudaGetDeviceCount", 5, 6))
    assert (found.host_only, found.verdict) == (True, "trusted")
    assert describe(found) == "host only: no launches and no device work; 1 step"


def test_a_trace_of_the_device_alone(build: Any) -> None:
    found = of(build.kernel("k", 0, 10), build.kernel("k", 20, 30))
    assert (found.device_only, found.verdict) == (True, "partial")
    assert found.reasons == ("no host events in the file: nothing says why the device was idle",)


def test_a_trace_whose_host_side_is_calls_alone(build: Any) -> None:
    found = of(build.launch(1, 0, 5), build.kernel("k", 10, 20, 1))
    assert (found.calls_only, found.device_only, found.verdict) == (True, False, "partial")
    assert "no ops in the file" in found.reasons[0]


def test_work_without_a_launch_in_the_steps_is_partial(build: Any) -> None:
    found = of(*pairs(build, 3), build.kernel("orphan", 270, 280, 99))
    assert found.verdict == "partial"
    assert found.reasons == ("1 of 4 items of device work in the steps have no launch: their op is unknown",)


def test_work_that_starts_before_its_launch(build: Any) -> None:
    rows = [build.op("aten::mm", 0, 90), build.launch(1, 20, 30), build.launch(2, 40, 50)]
    found = of(*rows, build.kernel("early", 12, 25, 1), build.kernel("during", 45, 60, 2))
    assert (found.inversions, found.worst_inversion_ns) == (1, 8)
    assert found.verdict == "partial"
    assert "at most 8.00 ns" in found.reasons[0]


def test_an_empty_trace_says_so() -> None:
    with pytest.raises(QrprofError, match="holds no time"):
        of()


# --- graphs


def replay(build: Any, number: int, at: int, names: str) -> list[dict[str, Any]]:
    """A graph launched at `at` that owns a kernel for each letter."""
    call = build.call("cudaGraphLaunch", at, at + 5, number)
    return [call, *(build.kernel(letter, at + 10 + 3 * n, at + 12 + 3 * n, number) for n, letter in enumerate(names))]


def graphs(build: Any, *steps: list[str]) -> Coverage:
    """Steps that replay graphs of the named kernels."""
    rows = [build.op("aten::relu", 0, 1), *(build.mark(n, 1000 * n) for n in range(len(steps) + 1))]
    for step, names in enumerate(steps):
        for turn, letters in enumerate(names):
            rows += replay(build, 100 * step + turn + 1, 1000 * step + 100 * turn + 10, letters)
    return of(*rows)


@pytest.mark.parametrize(
    ("steps", "incomplete", "constant"),
    [
        ([["abc"]], 0, None),  # nothing to compare with
        ([["abc"], ["abc"]], 0, True),
        ([["abc"], ["ac"]], 1, False),
        ([["abc"], ["b"], ["abc"]], 1, False),  # a single kernel is left
        ([["abc", "abc", "ab"]], 1, False),
        ([["abc", "bcd", "bc"]], 0, True),  # different graphs from one place
        ([["abc", "ab"], ["abc", "ab"]], 0, True),  # the second of each step is another graph
        ([["abc", "ab"], ["abc", "a"]], 1, False),
        ([["aab"], ["ab"]], 1, False),  # each name counts as often as it is there
    ],
)
def test_replays_of_one_graph_own_the_same_work(
    build: Any, steps: list[list[str]], incomplete: int, constant: bool | None
) -> None:
    found = graphs(build, *steps)
    assert found.replays == sum(map(len, steps))
    assert (found.incomplete_replays, found.replays_constant) == (incomplete, constant)
    assert (found.verdict is Verdict.ABSTAIN) == (incomplete > 0)


def test_graphs_launched_from_different_ops_are_not_compared(build: Any) -> None:
    rows = [build.op("first", 0, 90), build.op("second", 100, 200)]
    found = of(*rows, *replay(build, 1, 10, "abc"), *replay(build, 2, 110, "ab"))
    assert (found.replays, found.replays_constant, found.verdict) == (2, None, "trusted")


def test_graphs_of_one_op_are_compared_by_the_shapes_of_its_inputs(build: Any) -> None:
    """A kernel library replays one graph for each shape, and a step of an optimizer asks for several."""

    def step(*names: str) -> list[dict[str, Any]]:
        shapes = ["[[8,64,64]]", "[[8,64,64]]", "[[4,32,32]]"]
        ops = [build.op("aten::linalg_qr", 100 * n, 100 * n + 90, shapes=of) for n, of in enumerate(shapes)]
        return ops + [row for n, letters in enumerate(names) for row in replay(build, n + 1, 100 * n + 10, letters)]

    found = of(*step("abcc", "abcc", "abc"))
    assert (found.replays, found.replays_constant, found.verdict) == (3, True, "trusted")
    assert of(*step("abcc", "abc", "abc")).incomplete_replays == 1


# --- recorded traces


@pytest.mark.parametrize(
    ("name", "steps", "in_steps", "work", "without_launch"),
    [
        ("own_h200_qr_loop_8x512", 1, 864, 1246, 382),
        ("own_h200_two_streams_overlap", 2, 20, 35, 15),
        ("own_h200_mlp_cudagraph", 3, 240, 319, 79),
        ("own_h200_mlp_eager", 3, 240, 240, 0),
        ("own_h200_soap_qr", 1, 8948, 9831, 883),
        ("own_h200_loader_bound", 2, 644, 644, 0),
        ("own_h200_adamw_fused", 2, 746, 746, 0),
    ],
)
def test_h200_traces_are_trusted(name: str, steps: int, in_steps: int, work: int, without_launch: int) -> None:
    """The work without a launch is of the step before: it lies outside the steps."""
    found = coverage(kineto.read(DATA / f"{name}.json.gz"))
    assert (found.verdict, found.steps) == ("trusted", steps)
    assert (found.in_steps.work_with_launch, found.in_steps.work_without_launch) == (in_steps, 0)
    assert (found.in_file.work, found.in_file.work_without_launch) == (work, without_launch)
    assert found.in_file.launches_without_work == found.inversions == 0


def test_one_graph_launch_a_step_on_h200() -> None:
    found = coverage(kineto.read(DATA / "own_h200_mlp_cudagraph.json.gz"))
    assert (found.in_steps.launches, found.replays, found.replays_constant) == (3, 3, True)


def public(name: str) -> Trace:
    path = PUBLIC / f"{name}.json.gz"
    if not path.is_file():
        pytest.skip(f"no {name} in {PUBLIC} (QRPROF_TRACES)")
    return kineto.read(path)


def test_public_launches_without_kernels_abstain(build: Any) -> None:
    trace = public("hta_cupti_range_profiler")
    found = coverage(trace)
    assert (found.verdict, found.in_file.launches, found.in_file.work) == ("abstain", 94, 0)
    assert gaps(trace) == []
    assert partition(trace, build.run()).withheld == found.reasons[0]


def test_public_graph_replays() -> None:
    found = coverage(public("hta_a100_16rank_nccl_cudagraph_rank0"))
    assert (found.replays, found.replays_constant, found.verdict) == (70, True, "trusted")
    decode = coverage(public("tl_mi_vllm_decode_hipgraph"))
    assert (decode.replays, decode.replays_constant) == (1, None)
    assert (decode.in_steps.launches, decode.in_steps.work) == (14, 434)


def test_public_traces_of_one_side() -> None:
    assert coverage(public("tl_mi210_gpu_only")).calls_only
    assert coverage(public("hta_cpu_only_gloo.pt.trace")).host_only


def golden() -> list[Any]:
    if not (PUBLIC / "GOLDEN.tsv").is_file():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"no public traces in {PUBLIC} (QRPROF_TRACES)"))]
    lines = pd.read_csv(PUBLIC / "GOLDEN.tsv", sep="\t", quoting=csv.QUOTE_NONE)
    kept = lines[lines["trace"].str.endswith("json.gz") & (lines["gpu_events"] > 0)]
    return [pytest.param(line, id=line["trace"]) for _, line in kept.iterrows()]


@pytest.mark.parametrize("line", golden())
def test_public_traces_match_the_independent_counts(line: Any) -> None:
    trace = kineto.read(PUBLIC / line["trace"])
    found = coverage(trace)
    assert found.in_file.work == line["gpu_events"]
    assert found.in_file.work_without_launch == line["gpu_events_without_launch(all devices)"]
    assert found.inversions == 0


@pytest.mark.parametrize("line", golden())
def test_rows_of_public_traces_nest(line: Any) -> None:
    """Most count whole microseconds. No row is cut because its parent ended a rounding before it."""
    trace = kineto.read(PUBLIC / line["trace"])
    host = trace.events[trace.events["kind"].isin(HOST_KINDS) & (trace.events["device"] == HOST)]
    assert np.array_equal(np.sort(nest(trace.events).end), np.sort(host["end"].to_numpy()))


@pytest.mark.parametrize("api", ["cuda", "hip"])
def test_captured_launches_are_not_lost(build: Any, api: str) -> None:
    begin, end = build.call(f"{api}StreamBeginCapture", 310, 311), build.call(f"{api}StreamEndCapture", 330, 331)
    captured = build.call(f"{api}LaunchKernel", 320, 321, 50)
    elsewhere = build.call(f"{api}LaunchKernel", 320, 321, 51, thread=2)
    after = build.call(f"{api}LaunchKernel", 340, 341, 52)
    rows = pairs(build, 3)
    assert of(*rows, begin, captured, end).in_file.launches_without_work == 0
    assert of(*rows, begin, captured, elsewhere, end, after).in_file.launches_without_work == 2
    assert of(*rows, begin, captured, after).in_file.launches_without_work == 2


def test_device_work_outside_the_steps_alone_says_nothing_of_them(build: Any) -> None:
    before = [build.launch(1, 0, 5), build.kernel("k", 10, 20, 1)]
    found = of(*before, build.mark(0, 100), build.op("aten::mm", 110, 150), build.mark(1, 200))
    assert (found.verdict, found.reasons) == ("abstain", ("no device work in the steps",))
    assert describe(found) == "abstain: no device work in the steps"


@pytest.mark.parametrize(("pause", "verdict"), [(2_000, Verdict.TRUSTED), (42_000, Verdict.PARTIAL)])
def test_a_sampled_trace_is_known_by_the_pauses_of_queued_work(build: Any, pause: int, verdict: Verdict) -> None:
    rows = [build.op("aten::mm", 0, 10), build.mark(0, 0), build.mark(1, 60 * (pause + 1000))]
    for n in range(60):
        rows.append(build.launch(n + 1, 10 + n, 11 + n))
        rows.append(build.kernel("gemm", 1000 + n * (pause + 500), 1500 + n * (pause + 500), n + 1))
    found = of(*rows)
    assert (found.verdict, found.queue_pause_ns) == (verdict, float(pause))
    assert ("a median of 42.0 us after" in describe(found)) == (verdict is Verdict.PARTIAL)
