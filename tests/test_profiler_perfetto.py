"""Traces for the Perfetto viewer: nothing is lost on the way, and nothing is dropped there."""

import gzip
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from qrprof.profiler import perfetto
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.events import SYNC
from qrprof.profiler.gaps import gaps
from qrprof.profiler.lanes import apart_lanes, nested_lanes
from qrprof.profiler.panels import panels
from qrprof.profiler.panelsums import by_call
from qrprof.profiler.perfetto import export, us
from qrprof.profiler.readers import kineto
from qrprof.profiler.runinfo import DeviceInfo
from qrprof.profiler.trace import Trace

DATA = Path(__file__).parent / "data"
PUBLIC = Path(os.environ.get("QRPROF_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
OWN = sorted(DATA.glob("own_h200_*.json.gz"))
OTHERS: list[Any] = [path for path in sorted(PUBLIC.glob("*.json.gz")) if not path.name.startswith("own_")]
TRACES = [*OWN, *OTHERS] if OTHERS else [*OWN, pytest.param(Path(), marks=pytest.mark.skip("no public traces"))]

Event = dict[str, Any]


def ns(text: str) -> int:
    return int(Decimal(text) * 1000)


def events_of(path: Path) -> list[Event]:
    """The file's events, times in ns."""
    with gzip.open(path, "rt") if path.name.endswith(".gz") else path.open() as file:
        events = json.load(file, parse_float=str)["traceEvents"]
    return [event | {key: ns(event[key]) for key in ("ts", "dur") if key in event} for event in events]


def plain(trace: Trace) -> pd.DataFrame:
    return trace.events.astype(dict.fromkeys(("kind", "name", "shapes", "dtypes"), str))


def dropped(events: Iterable[Event]) -> int:
    """Slices that the viewer drops, by its rule: they begin inside an open slice of their thread and end after it."""
    stacks: dict[tuple[int, int], list[int]] = defaultdict(list)
    count = 0
    for event in sorted((event for event in events if event["ph"] == "X"), key=lambda event: event["ts"]):
        stack, start, end = stacks[event["pid"], event["tid"]], event["ts"], event["ts"] + event["dur"]
        while stack and stack[-1] <= start:
            stack.pop()
        if stack and end > stack[-1]:
            count += 1
        else:
            stack.append(end)
    return count


# --- the rows


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_what_is_written_reads_back_the_same(path: Path, tmp_path: Path) -> None:
    trace = kineto.read(path)
    written = export(trace, tmp_path / "out.json")
    back = kineto.read(tmp_path / "out.json")
    assert_frame_equal(plain(back), plain(trace))
    assert (back.base_ns, back.warnings, written.rows) == (trace.base_ns, (), len(trace.events))
    assert dropped(events_of(tmp_path / "out.json")) == 0


times = st.tuples(st.integers(0, 40), st.integers(0, 15))


@given(rows=st.lists(times, min_size=1, max_size=25), work=st.lists(times, max_size=15))
def test_any_rows_read_back_and_none_is_dropped(
    tmp_path_factory: pytest.TempPathFactory, build: Any, rows: list[tuple[int, int]], work: list[tuple[int, int]]
) -> None:
    host = [build.op(f"op{n % 3}", start, start + length, n % 2) for n, (start, length) in enumerate(rows)]
    device = [build.kernel(f"k{n % 3}", start, start + length, n + 1) for n, (start, length) in enumerate(work)]
    launches = [build.launch(n + 1, n, n + 2) for n in range(0, len(work), 2)]
    trace = Trace.from_rows([build.op("all", 0, 60), *host, *device, *launches])
    path = tmp_path_factory.mktemp("any") / "out.json"
    export(trace, path)
    assert_frame_equal(plain(kineto.read(path)), plain(trace))
    assert dropped(events_of(path)) == 0


@given(st.lists(times, max_size=30))
def test_lanes(rows: list[tuple[int, int]]) -> None:
    spans = sorted(((start, start + length) for start, length in rows), key=lambda span: (span[0], -span[1]))
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    for lanes, may_nest in ((nested_lanes(starts, ends), True), (apart_lanes(starts, ends), False)):
        for (start, end, lane), (later, until, other) in (
            (a, b)
            for place, a in enumerate(zip(starts, ends, lanes, strict=True))
            for b in list(zip(starts, ends, lanes, strict=True))[place + 1 :]
        ):
            assert lane != other or later >= end or (may_nest and until <= end) or start == later == until
    assert set(nested_lanes([0, 1, 2], [9, 3, 3])) == {0}
    assert nested_lanes([0, 5, 6], [7, 9, 7]) == [0, 1, 0]
    assert apart_lanes([0, 5, 7], [7, 9, 8]) == [0, 1, 0]


@given(st.integers(-(10**16), 10**16))
def test_times_are_the_decimal_text_of_whole_nanoseconds(value: int) -> None:
    assert Decimal(us(value)) * 1000 == value
    assert us(value)[-4] == "."


def test_every_thread_has_a_name_and_a_place(tmp_path: Path, build: Any) -> None:
    trace = Trace.from_rows(
        [
            build.op("a", 0, 10, 5),
            build.op("overlaps a", 5, 15, 5),
            build.op("aten::geqrf", 0, 10, 4),
            build.note("ProfilerStep#1", 0, 90, 4),
            build.kernel("k", 20, 30),
            build.kernel("overlaps k", 25, 35),
            build.kernel("elsewhere", 20, 30, stream=9) | {"device": 3},
            build.kernel("waits", 20, 40, kind=SYNC),
        ]
    )
    run = build.run()
    devices = [DeviceInfo(index=3, kind="cuda", name="NVIDIA H200", memory_bytes=7)]
    export(trace, tmp_path / "out.json", run.model_copy(update={"devices": devices}))
    events = events_of(tmp_path / "out.json")
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    threads = {
        (event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    drawn = {event["name"]: (event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    shown = {name: (processes[pid], threads[pid, tid]) for name, (pid, tid) in drawn.items()}
    assert shown == {
        "a": ("host", "thread 5"),
        "overlaps a": ("host (2)", "thread 5"),
        "aten::geqrf": ("host", "thread 4"),
        "ProfilerStep#1": ("host", "thread 4"),
        "k": ("device 0", "stream 7"),
        "overlaps k": ("device 0", "stream 7 (2)"),
        "waits": ("device 0", "stream 7 sync"),
        "elsewhere": ("device 3 NVIDIA H200", "stream 9"),
    }
    order = {event["pid"]: event["args"]["sort_index"] for event in events if event["name"] == "process_sort_index"}
    by_order = [processes[pid] for pid in sorted(order, key=order.__getitem__)]
    assert by_order == ["qrprof", "device 0", "device 3 NVIDIA H200", "host", "host (2)"]
    first = {
        event["tid"]: event["args"]["sort_index"]
        for event in events
        if event["name"] == "thread_sort_index" and processes[event["pid"]] == "host"
    }
    assert first[4] < first[5]  # the thread of the steps is on top


# --- what is added


def test_arrows_lead_from_launches_to_their_work(tmp_path: Path) -> None:
    for name, owned in (("mlp_cudagraph", 80), ("qr_loop_8x512", 1)):
        written = export(kineto.read(DATA / f"own_h200_{name}.json.gz"), tmp_path / "out.json")
        events = events_of(tmp_path / "out.json")
        slices = {
            (event["pid"], event["tid"], event["ts"], event["args"]["correlation"]): event
            for event in events
            if event["ph"] == "X" and "correlation" in event["args"]
        }
        starts, ends = ({event["id"]: event for event in events if event["ph"] == phase} for phase in "sf")
        assert len(starts) == len(ends) == written.arrows
        launches: Counter[int] = Counter()
        for number, end in ends.items():
            source = starts[number]
            assert end["bp"] == "e"
            (to,) = [event for key, event in slices.items() if key[:3] == (end["pid"], end["tid"], end["ts"])]
            launch = slices[source["pid"], source["tid"], source["ts"], to["args"]["correlation"]]
            assert launch["cat"] == "cuda_runtime"
            launches[launch["args"]["correlation"]] += 1
        assert max(launches.values()) == owned
    assert written.arrows == 864


def test_gaps_and_qr_calls_are_tracks_of_their_own(tmp_path: Path) -> None:
    trace = kineto.read(DATA / "own_h200_soap_qr.json.gz")
    written = export(trace, tmp_path / "out.json.gz")
    events = events_of(tmp_path / "out.json.gz")
    tracks = {
        event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name" and event["pid"] == 1
    }
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    begun: dict[int, int] = {}
    for event in sorted((event for event in events if event["ph"] in "BE"), key=lambda event: event["ts"]):
        if event["ph"] == "B":
            assert event["tid"] not in begun
            begun[event["tid"]] = event["ts"]
        else:
            spans[tracks[event["tid"]]].append((begun.pop(event["tid"]), event["ts"]))
    steps = panels(trace)
    assert dict(spans) == {
        "gaps of device 0": [(gap.start, gap.end) for gap in gaps(trace)],
        "QR calls": [(call.start, call.end) for call in by_call(steps)],
        "QR block columns": [(step.start, step.end) for step in steps if step.part],
    }
    assert (written.gaps, written.calls) == (len(gaps(trace)), 34)
    labels = {event["name"] for event in events if event["ph"] == "B"}
    assert {"linalg_qr 1 x 512 x 512 float", "geqrf 0: 512 x 512, nb 64", "orgqr 3: 128 x 128, nb 128"} <= labels


def test_calls_on_a_cpu_are_drawn_and_a_call_without_its_work_is_not(tmp_path: Path, build: Any) -> None:
    rows = [
        build.op("aten::geqrf", 0, 10, shapes="[[4,4]]", dtypes="float"),
        build.op("aten::geqrf", 5, 20, 2, shapes="[[4,4]]", dtypes="float"),
        build.op("aten::geqrf", 30, 40, shapes="[[4,4]]", dtypes="float"),
        build.launch(3, 31, 32),
    ]
    assert export(Trace.from_rows(rows), tmp_path / "out.json").calls == 2
    events = [event for event in events_of(tmp_path / "out.json") if event["pid"] == 1]
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == {"QR calls", "QR calls (2)"}
    assert [event["args"]["note"] for event in events if event["ph"] == "B"] == 2 * ["LAPACK: not split"]


def test_the_file_says_of_which_process_it_is(tmp_path: Path, build: Any) -> None:
    devices = [
        DeviceInfo(index=0, kind="cpu", name="Some CPU", memory_bytes=1),
        DeviceInfo(index=2, kind="cuda", name="NVIDIA H200", memory_bytes=150109880320),
    ]
    run = build.run().model_copy(update={"devices": devices, "rank": 3, "world_size": 8})
    export(Trace.from_rows([build.op("a", 0, 10)]), tmp_path / "out.json", run)
    source = kineto.read_source(tmp_path / "out.json")
    assert (source.rank, source.world_size, source.devices) == (3, 8, (devices[1],))
    head = json.loads((tmp_path / "out.json").read_text())
    assert head["displayTimeUnit"] == "ms"  # "ns" makes older viewers read us as ns
    assert head["otherData"]["run"] == run.id
    assert head["otherData"]["coverage"].startswith("host only")


# --- the file


def test_a_file_takes_its_place_only_when_it_is_whole(
    tmp_path: Path, build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, path = Trace.from_rows([build.op("a", 0, 10)]), tmp_path / "out.json"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(perfetto, "_write_found", fail)
        with pytest.raises(QrprofError, match="No space left on device"):
            export(trace, path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]
    export(trace, path)
    assert kineto.read(path).events["name"].tolist() == ["a"]
    with pytest.raises(QrprofError, match="give another file"):
        export(trace, tmp_path / "no" / "out.json")
    with pytest.raises(QrprofError, match="no time"):
        export(Trace.from_rows([]), path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path) -> None:
    trace = kineto.read(DATA / "own_h200_mlp_eager.json.gz")
    for name in ("a.json.gz", "b.json.gz"):
        export(trace, tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    assert (tmp_path / "a.json.gz").read_bytes()[:2] == b"\x1f\x8b"
