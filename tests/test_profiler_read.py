"""Reading traces of other ages, vendors and formats: made files with known answers."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.events import DEVICE_WORK
from qrprof.profiler.read import read
from qrprof.profiler.readers.kineto import read_source
from qrprof.profiler.trace import Trace


def span(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 2, "ts": ts, "dur": dur, "args": args}


def kernel(ts: float, dur: float, correlation: int = 0, stream: int = 0, cat: str = "kernel") -> dict[str, Any]:
    return span(cat, "gemm", ts, dur, device=0, stream=stream, correlation=correlation)


def save(path: Path, *events: dict[str, Any], **metadata: Any) -> Path:
    path.write_text(json.dumps({**metadata, "traceEvents": list(events)}))
    return path


def rows(trace: Trace, *columns: str) -> list[tuple[Any, ...]]:
    return list(trace.events[list(columns)].itertuples(index=False, name=None))


# --- ages and vendors ---


def test_the_category_names_of_2020(tmp_path: Path) -> None:
    names = ("Operator", "Runtime", "Kernel", "Memcpy", "Memset")
    path = save(tmp_path / "old.json", *(span(cat, cat, 10 + n, 1, correlation=4) for n, cat in enumerate(names)))
    assert rows(read(path), "kind", "name") == [
        ("op", "Operator"),
        ("runtime", "Runtime"),
        ("kernel", "Kernel"),
        ("copy", "Memcpy"),
        ("memset", "Memset"),
    ]


def test_the_ranges_of_2020_are_known_by_name(tmp_path: Path) -> None:
    names = (
        "ProfilerStep#3",
        "enumerate(DataLoader)#_Next",
        "Optimizer.step#SGD.step",
        "aten::mm",
        "my ProfilerStep#3",
    )
    events = [span("Operator", name, 10 + n, 1) for n, name in enumerate(names)]
    trace = read(save(tmp_path / "old.json", *events))
    assert rows(trace, "name", "kind") == list(zip(names, (*["annotation"] * 3, "op", "op"), strict=True))


def test_several_processes_in_one_file_are_counted(tmp_path: Path) -> None:
    calls = [span("cuda_runtime", "cudaLaunchKernel", 1 + n, 1, correlation=4) | {"pid": n} for n in (5, 5, 6, 7)]
    others = [kernel(9, 1, 4) | {"pid": 0}, span("overhead", "Buffer Flush", 9, 1) | {"pid": -1}]
    assert read(save(tmp_path / "a.json", *calls, *others)).warnings == (
        "ops of 3 processes are in one file; launches are matched by correlation alone",
    )
    assert read(save(tmp_path / "b.json", *calls[:2], *others)).warnings == ()


def test_rocm_works_on_stream_0(tmp_path: Path) -> None:
    events = [span("cuda_runtime", "hipLaunchKernel", 1, 1, correlation=7), kernel(3, 2, 7)]
    path = save(
        tmp_path / "rocm.json", *events, hip_runtime_version=60443483, deviceProperties=[{"id": 0, "name": "MI300X"}]
    )
    source = read_source(path)
    assert rows(source.trace, "kind", "device", "track", "correlation") == [("runtime", -1, 2, 7), ("kernel", 0, 0, 7)]
    assert source.versions == {"hip": "6.4.43483"}
    assert [(device.index, device.name) for device in source.devices] == [(0, "MI300X")]


def test_other_accelerators_give_their_host_side_and_a_warning(tmp_path: Path) -> None:
    xpu = [span("xpu_runtime", "urEnqueueKernelLaunch", 1, 1, correlation=3), kernel(3, 2, 3)]
    assert rows(read(save(tmp_path / "xpu.json", *xpu)), "kind") == [("runtime",), ("kernel",)]
    others = [span(cat, "x", 1, 1) for cat in ("mtia_ccp_events", "cuda_profiler_range")]
    trace = read(save(tmp_path / "other.json", span("cpu_op", "aten::mm", 1, 1), *others))
    assert len(trace.events) == 1
    assert trace.warnings == (
        "2 events of unknown categories were left out: 'mtia_ccp_events' (1), 'cuda_profiler_range' (1)",
    )


# --- what profilers get wrong ---


def test_spans_open_at_the_end_are_counted_and_left_out(tmp_path: Path) -> None:
    open_ones = [span("cpu_op", "open", 1, 9, finished="false"), span("kernel", "open", 1, 9, finished=False)]
    trace = read(save(tmp_path / "a.json", span("cpu_op", "done", 1, 1, finished="true"), *open_ones))
    assert rows(trace, "name") == [("done",)]
    assert trace.warnings == ("2 spans still open at the end of the recording were left out",)


def test_a_range_open_at_the_end_is_kept_for_what_ran_in_it(tmp_path: Path) -> None:
    ranges = [span("user_annotation", "Optimizer.step#SGD.step", 1, 9, finished="false")]
    trace = read(save(tmp_path / "a.json", span("cpu_op", "aten::add_", 2, 1), *ranges))
    assert rows(trace, "name") == [("Optimizer.step#SGD.step",), ("aten::add_",)]
    assert trace.warnings == ()


def test_events_at_0_of_a_trace_that_starts_later_lost_their_time(tmp_path: Path) -> None:
    strays = [kernel(0, 0), kernel(0, 5)]
    trace = read(save(tmp_path / "a.json", *strays, kernel(5102502565192.831, 1.024)))
    assert rows(trace, "start") == [(5102502565192831,)]
    assert trace.warnings == ("2 events whose time was lost (ts 0) were left out",)
    near = read(save(tmp_path / "b.json", *strays, kernel(9.5, 1)))
    assert (len(near.events), near.warnings) == (3, ())


def test_a_negative_duration_is_none(tmp_path: Path) -> None:
    trace = read(save(tmp_path / "a.json", kernel(10, -3.5, 4), kernel(20, 1, 5)))
    assert rows(trace, "start", "end", "correlation") == [(10000, 10000, 4), (20000, 21000, 5)]
    assert trace.warnings == ("1 spans of an impossible duration were kept with none",)


HIP = span("cuda_runtime", "hipLaunchKernel", 0.5, 1)
CUDA = span("cuda_runtime", "cudaLaunchKernelExC", 0.5, 1)


def work(trace: Trace) -> list[tuple[Any, ...]]:
    own = trace.events[trace.events["kind"].isin(DEVICE_WORK)]
    return list(own[["start", "end", "track"]].itertuples(index=False, name=None))


def test_rocm_work_that_outlives_later_work_of_its_stream_is_cut(tmp_path: Path) -> None:
    events = [kernel(10, 3_000_000), kernel(20, 5), kernel(30, 2_000_000), kernel(40, 5), kernel(15, 900, stream=1)]
    trace = read(save(tmp_path / "a.json", HIP, *events))
    assert work(trace) == [
        (10_000, 20_000, 0),
        (15_000, 915_000, 1),
        (20_000, 25_000, 0),
        (30_000, 40_000, 0),
        (40_000, 45_000, 0),
    ]
    assert trace.warnings == (
        "2 spans of device work ended after later ones of their stream (ROCm): cut where the next one starts",
    )


def test_work_is_cut_right_where_rows_before_it_were_left_out(tmp_path: Path) -> None:
    day = 86_400_000_000  # us
    later = [kernel(day + ts, dur) for ts, dur in ((10, 3_000_000), (20, 5), (30, 5))]
    trace = read(save(tmp_path / "a.json", kernel(0, 0), kernel(0, 0), HIP | {"ts": day}, *later))
    assert [(start - 1000 * day, end - 1000 * day) for start, end, _ in work(trace)] == [
        (10_000, 20_000),
        (20_000, 25_000),
        (30_000, 35_000),
    ]
    assert [warning.split()[0] for warning in trace.warnings] == ["2", "1"]


@pytest.mark.parametrize(
    ("launch", "first", "second"),
    [
        (CUDA, (10, 8), (14, 9)),  # a programmatic launch: the next kernel begins early, and ends later
        (CUDA, (10, 3_000_000), (14, 1)),
        (HIP, (10, 8), (14, 9)),
        (HIP, (10, 5), (13, 1)),  # whole microseconds
        (HIP, (10, 900), (20, 0)),  # of no duration: no evidence
    ],
)
def test_other_overlaps_are_kept(
    launch: dict[str, Any], first: tuple[int, int], second: tuple[int, int], tmp_path: Path
) -> None:
    trace = read(save(tmp_path / "a.json", launch, kernel(*first), kernel(*second)))
    assert work(trace) == [(1000 * ts, 1000 * (ts + dur), 0) for ts, dur in (first, second)]
    assert trace.warnings == ()


# --- what must not be kept ---

SECRETS = (
    "hf_abcdefghijklmnopqrstuvwxyz",
    "sk-proj-0123456789abcdefghij",
    "ghp_0123456789abcdefghijABCDEFGHIJ",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkw.c2ln",
)
PAIRS = (
    "password=hunter2hunter2",
    "API_KEY: 'hunter2hunter2'",
    "Authorization: Basic hunter2hunter2",
    "MY_TOKEN = 0a1b2c3d4e5f6a7b",
    "Bearer hunter2hunter2",
    "ftp://me:hunter2hunter2@host",
)


def test_names_that_look_like_secrets_are_masked(tmp_path: Path) -> None:
    names = [f"load {secret} now" for secret in SECRETS] + list(PAIRS)
    trace = read(save(tmp_path / "a.json", *(span("user_annotation", name, n + 1, 1) for n, name in enumerate(names))))
    kept = [name for (name,) in rows(trace, "name")]
    assert kept[:5] == ["load [masked] now"] * 5
    assert kept[5:] == [
        "password=[masked]",
        "API_KEY: '[masked]'",
        "Authorization: Basic [masked]",
        "MY_TOKEN = [masked]",
        "Bearer [masked]",
        "ftp://[masked]@host",
    ]
    assert trace.warnings == ("11 names that look like secrets were masked",)


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, float*)",
        "triton_poi_fused_add_mul_0d1d2d3d4d5d6d7d8d9d10de",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4",
        "token = 12345678, tokens: 4096, key=value",
        "desk-lamp-with-a-very-long-name, task-0123456789abcdefghij",
        "Optimizer.step#AdamW.step",
        "authorize(user)",
        "sk-learn-regression-model-fit",
        "Basic transformer_block_layer, bearer implementation",
        "https://host/path:8080@2",
    ],
)
def test_names_of_kernels_and_ranges_are_no_secrets(name: str, tmp_path: Path) -> None:
    trace = read(save(tmp_path / "a.json", span("user_annotation", name, 1, 1)))
    assert (rows(trace, "name"), trace.warnings) == ([(name,)], ())


# --- formats and bad files ---


def test_progress_tells_the_files_bytes_to_the_end(tmp_path: Path) -> None:
    path = save(tmp_path / "a.json", *(kernel(n + 1, 1) for n in range(30_000)))
    with gzip.open(tmp_path / "a.gz", "wb") as file:
        file.write(path.read_bytes())
    for one in (path, tmp_path / "a.gz"):
        told: list[tuple[int, int]] = []
        read(one, lambda done, total, told=told: told.append((done, total)))  # type: ignore[misc]
        size = one.stat().st_size
        assert told == sorted(told)
        assert told[-1] == (size, size)
        assert {total for _, total in told} == {size}
    assert len(told) > 0


def test_a_killed_runs_temporary_file_keeps_its_whole_events(tmp_path: Path) -> None:
    path = save(tmp_path / "trace.json.tmp", kernel(1, 1), kernel(2, 1), kernel(3, 1))
    path.write_bytes(path.read_bytes()[:-30])
    trace = read(path)
    assert len(trace.events) == 2
    assert trace.warnings == ("the file breaks off: the 2 events up to there were kept",)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.json", b"", "is empty"),
        ("a.json", b"hello", "is not a trace"),
        ("a.gz", b"\x1f\x8bnot gzip", "is damaged gzip"),
        ("a.gz", gzip.compress(b"SQLite format 3\0" + bytes(100), mtime=0), "is a compressed database"),
        ("a.sqlite", b"SQLite format 3\0" + b"\xff" * 500, "is a damaged SQLite file"),
        ("a.nsys-rep", b"anything", "is a report of Nsight Systems: import what `nsys export"),
        ("a.tar", bytes(257) + b"ustar" + b"\xff" * 250, "is a damaged archive"),
    ],
)
def test_bad_files_are_one_sentence(name: str, content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(QrprofError) as caught:
        read(path)
    assert f"{path} {reason}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_without_traces(tmp_path: Path) -> None:
    with pytest.raises(QrprofError, match="cannot read"):
        read(tmp_path / "missing.json")
    (tmp_path / "readme.txt").write_text("hello")
    (tmp_path / "config.json").write_text("[1, 2]")
    with pytest.raises(QrprofError, match="holds no traces"):
        read(tmp_path)
