"""The reader of Nsight Systems' SQLite exports: real ones against golden answers, made ones with anything missing."""

import csv
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.events import DEVICE_WORK, HOST
from qrprof.profiler.partition import partition
from qrprof.profiler.read import read
from qrprof.profiler.readers.nsys import read_sources
from qrprof.profiler.readers.source import Source

PUBLIC = Path(os.environ.get("QRPROF_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
EXPORTS = sorted(PUBLIC.glob("*.sqlite"))
GOLDEN = ("runtime", "work", "streams", "span", "busy", "sum", "unmatched", "most")


# --- real exports ---


def golden() -> list[Any]:
    table = PUBLIC / "GOLDEN.tsv"
    if not table.is_file():
        return [pytest.param({}, marks=pytest.mark.skip(f"no public traces in {PUBLIC}; set QRPROF_TRACES"))]
    with table.open() as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if ".sqlite" in row["trace"]]
    return [pytest.param(row, id=f"{row['trace']}-{row['device'].replace('/', '-')}") for row in rows]


def exports() -> list[Any]:
    skip = pytest.mark.skip(f"no public traces in {PUBLIC}; set QRPROF_TRACES")
    return [pytest.param(path, id=path.stem) for path in EXPORTS] or [pytest.param(None, marks=skip)]


def union(work: pd.DataFrame) -> int:
    total, reached = 0, -1
    for start, end in sorted(zip(work["start"].tolist(), work["end"].tolist(), strict=True)):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def unmatched(source: Source) -> int:
    launched = set(source.trace.of_kind("runtime")["correlation"]) - {0}
    return int((~source.trace.device_work()["correlation"].isin(launched)).sum())


@pytest.mark.parametrize("row", golden())
def test_exports_give_the_golden_answers(row: dict[str, str]) -> None:
    """Runtime calls, unmatched work and the most work of one call are of all processes of the file."""
    process, _, device = row["device"].partition("/dev")
    sources = read_sources(PUBLIC / row["trace"])
    (own,) = [one for one in sources if one.part in (f"process {process.removeprefix('pid')}", "")]
    work = own.trace.device_work()
    work = work[work["device"] == int(device)]
    facts = (
        sum(len(one.trace.of_kind("runtime")) for one in sources),
        len(work),
        work["track"].nunique(),
        int(work["end"].max() - work["start"].min()),
        union(work),
        int((work["end"] - work["start"]).sum()),
        sum(unmatched(one) for one in sources),
        max(int(one.trace.device_work()["correlation"].value_counts().max()) for one in sources),
    )
    expected = tuple(int(value) for value in list(row.values())[3:])
    assert dict(zip(GOLDEN, facts, strict=True)) == dict(zip(GOLDEN, expected, strict=True))


@pytest.mark.parametrize("path", exports())
def test_only_tables_of_events_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The captured environment lies in other tables, and in texts that no event refers to."""
    seen: set[tuple[str, str]] = set()

    def note(action: int, table: str | None, column: str | None, *_: Any) -> int:
        if action == sqlite3.SQLITE_READ and table and column:
            seen.add((table, column))
        return sqlite3.SQLITE_OK

    def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        database: sqlite3.Connection = stock(*args, **kwargs)
        database.set_authorizer(note)
        return database

    stock = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", connect)
    traces = [one.trace for one in read_sources(path)]
    tables = {table for table, _ in seen}
    assert "StringIds" in tables
    for table in tables - {"StringIds", "sqlite_master"}:
        assert table.startswith(("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS", "PROFILER_OVERHEAD")) or table in (
            "TARGET_INFO_GPU",
            "TARGET_INFO_SESSION_START_TIME",
            "META_DATA_EXPORT",
            "EXPORT_META_DATA",
        )
    assert all(len(trace.events) for trace in traces)


@pytest.mark.parametrize("path", exports())
def test_the_processes_of_a_job_are_told_apart_and_can_be_divided(path: Path, build: Any) -> None:
    sources = read_sources(path)
    assert [one.rank for one in sources] == ([0, 1] if "x2" in path.name else [None])
    for number, one in enumerate(sources):
        assert set(one.trace.device_work()["device"]) == {number}
        assert one.trace.base_ns > 1_600_000_000 * 10**9
        parts = partition(one.trace, build.run())
        assert parts.recorded_ns > 0
        if "x2" in path.name:
            ops = one.trace.of_kind("op")
            assert ops["name"].str.startswith("aten::").mean() > 0.9
            assert not ops["name"].str.contains("op_id").any()


# --- made exports ---

STRINGS = {
    1: "gemm(float *)",
    2: "gemm",
    3: "cudaLaunchKernel_v7000",
    4: "cudaStreamGetCaptureInfo_v2_v11030",
    5: "aten::mm, seq = 12, op_id = 7, sizes = [[2, 3], [3, 4]]",
    6: "Buffer Flush",
    99: "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz",
}
A, B = 0x1000000 * 111, 0x1000000 * 112  # processes
PLACE = "start end deviceId streamId correlationId globalPid"
CUPTI = "CUPTI_ACTIVITY_KIND_"
Tables = dict[str, tuple[str, list[tuple[Any, ...]]]]  # by name: columns and rows

TABLES: Tables = {
    "StringIds": ("id value", list(STRINGS.items())),
    f"{CUPTI}KERNEL": (
        f"{PLACE} demangledName shortName",
        [(1000, 2000, 0, 7, 5, A, 1, 2), (1100, 1900, 1, 7, 5, B, 1, 2), (2100, 2050, 0, 7, 6, A, None, 2)],
    ),
    f"{CUPTI}MEMCPY": (f"{PLACE} bytes copyKind srcKind dstKind", [(3000, 3500, 0, 7, 8, A, 4096, 1, 1, 2)]),
    f"{CUPTI}MEMSET": (f"{PLACE} bytes memKind", [(3600, 3700, 0, 7, 9, A, 64, 2)]),
    f"{CUPTI}SYNCHRONIZATION": (f"{PLACE} syncType", [(3700, 3800, 0, 4294967295, 10, A, 4)]),
    f"{CUPTI}RUNTIME": (
        "start end globalTid correlationId nameId",
        [(500, 600, A + 3, 5, 3), (510, 610, B + 4, 5, 3), (700, 800, A + 3, 6, 4)],
    ),
    "NVTX_EVENTS": (
        "start end eventType text globalTid endGlobalTid textId",
        [
            (400, 900, 59, None, A + 3, None, 5),
            (450, 460, 59, "user range, op_id = 9", A + 3, None, None),
            (470, 480, 60, "wanders", A + 3, A + 9, None),
            (490, None, 34, "a mark", A + 3, None, None),
        ],
    ),
    "PROFILER_OVERHEAD": ("start end globalTid nameId", [(5000, 5100, A + 5, 6)]),
    "TARGET_INFO_GPU": ("id name totalMemory", [(0, "H100", 80), (1, "H100", 80)]),
    "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs systemClockNs", [(1_700_000_000_000_000_500, 500)]),
    "META_DATA_EXPORT": ("name value", [("EXPORT_PRODUCT_VERSION", "2026.2.1"), ("HOME", "/root")]),
    "TARGET_INFO_SYSTEM_ENV": ("name value", [("HF_TOKEN", "hf_abcdefghijklmnopqrstuvwxyz")]),
    "META_DATA_CAPTURE": ("name value", [("ENV", "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz")]),
}


def export(path: Path, tables: Tables = TABLES) -> Path:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database, database:
        for table, (columns, content) in tables.items():
            names = columns.split()
            quoted = ", ".join(f'"{name}"' for name in names)
            database.execute(f"CREATE TABLE {table} ({quoted})")
            database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", content)
    return path


def rows(source: Source, *columns: str) -> list[tuple[Any, ...]]:
    return list(source.trace.events[list(columns)].itertuples(index=False, name=None))


def test_what_the_tables_say(tmp_path: Path) -> None:
    one, two = read_sources(export(tmp_path / "a.sqlite"))
    assert rows(one, "kind", "name", "start", "end", "device", "track", "correlation") == [
        ("op", "aten::mm", 400, 900, HOST, 3, 0),
        ("annotation", "user range", 450, 460, HOST, 3, 0),
        ("runtime", "cudaLaunchKernel", 500, 600, HOST, 3, 5),
        ("runtime", "cudaStreamGetCaptureInfo_v2", 700, 800, HOST, 3, 6),
        ("kernel", "gemm(float *)", 1000, 2000, 0, 7, 5),
        ("kernel", "gemm", 2100, 2100, 0, 7, 6),
        ("copy", "Memcpy HtoD (Pinned -> Device)", 3000, 3500, 0, 7, 8),
        ("memset", "Memset (Device)", 3600, 3700, 0, 7, 9),
        ("sync", "Context Sync", 3700, 3800, 0, -1, 10),
        ("overhead", "Buffer Flush", 5000, 5100, HOST, 5, 0),
    ]
    assert rows(two, "kind", "device", "track", "correlation") == [("runtime", HOST, 4, 5), ("kernel", 1, 7, 5)]
    assert rows(one, "sequence", "shapes", "bytes")[0] == (12, "[[2,3],[3,4]]", -1)
    assert [size for (size,) in rows(one, "bytes")][6:8] == [4096, 64]
    assert (one.rank, two.rank, one.part) == (0, 1, "process 111")
    assert one.trace.base_ns == 1_700_000_000_000_000_000
    assert [(gpu.index, gpu.name, gpu.memory_bytes) for gpu in one.devices] == [(0, "H100", 80), (1, "H100", 80)]
    assert one.versions == {"nsys": "2026.2.1"}
    assert one.trace.warnings == ("1 spans of an impossible duration were kept with none",)
    assert two.trace.warnings[-1].startswith("no ops in the file")
    assert "hf_" not in repr([vars(source) for source in (one, two)])


def test_one_file_two_processes_is_said(tmp_path: Path) -> None:
    trace = read(export(tmp_path / "a.sqlite"))
    assert "several processes: this is process 111" in trace.warnings[-1]


def test_graphs_recorded_whole(tmp_path: Path) -> None:
    graphs = [(4000, 4900, 0, 7, 5, A, 3), (5000, 5900, 0, 7, 11, A, 3)]  # the kernels of the first are there
    tables = TABLES | {f"{CUPTI}GRAPH_TRACE": (f"{PLACE} graphId", graphs)}
    one, _ = read_sources(export(tmp_path / "a.sqlite", tables))
    assert [row for row in rows(one, "kind", "name", "start") if "graph" in row[1]] == [
        ("kernel", "CUDA graph 3", 5000)
    ]
    assert any("--cuda-graph-trace=node" in line for line in one.trace.warnings)


def ranges(*texts: str) -> Tables:
    columns, _ = TABLES["NVTX_EVENTS"]
    own = [(100 * n, 100 * n + 90, 59, text, A + 3, None, None) for n, text in enumerate(texts)]
    return TABLES | {"NVTX_EVENTS": (columns, own)}


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (("step 4", "step 5", "step 6"), ["ProfilerStep#4", "ProfilerStep#5", "ProfilerStep#6"]),
        (("train_iteration_1", "train_iteration_2"), ["ProfilerStep#1", "ProfilerStep#2"]),
        (("step 4", "step 6"), ["step 4", "step 6"]),
        (("step 4", "other"), ["step 4", "other"]),
        (("ProfilerStep#1", "step 1", "step 2"), ["ProfilerStep#1", "step 1", "step 2"]),
        (("footstep1", "size 2"), ["footstep1", "size 2"]),
    ],
)
def test_ranges_that_count_up_are_the_steps(texts: tuple[str, ...], names: list[str], tmp_path: Path) -> None:
    one, _ = read_sources(export(tmp_path / "a.sqlite", ranges(*texts)))
    assert [name for kind, name in rows(one, "kind", "name") if kind == "annotation"] == names
    assert bool(one.steps) == (names != list(texts))


def test_a_process_without_gpu_is_left_out(tmp_path: Path) -> None:
    columns, own = TABLES["NVTX_EVENTS"]
    launcher = (100, 200, 59, "launch", 0x1000000 * 50 + 1, None, None)
    sources = read_sources(export(tmp_path / "a.sqlite", TABLES | {"NVTX_EVENTS": (columns, [*own, launcher])}))
    assert [source.part for source in sources] == ["process 111", "process 112"]
    assert "1 other processes of the file used no GPU and were left out" in sources[0].trace.warnings


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ({}, "is an SQLite database, but no export"),
        ({"users": ("id", [(1,)])}, "is an SQLite database, but no export"),
        ({"StringIds": TABLES["StringIds"]}, "holds no CUDA or NVTX events"),
        ({"NVTX_EVENTS": ("start text", [(1, "x")])}, "holds no CUDA or NVTX events"),
    ],
)
def test_databases_of_something_else(tables: Any, reason: str, tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", tables | {"other": ("id", [(1,)])})
    with pytest.raises(QrprofError) as caught:
        read(path)
    assert f"{path} {reason}" in str(caught.value)


def test_a_truncated_export(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite")
    path.write_bytes(path.read_bytes()[:-9000])
    with pytest.raises(QrprofError, match=r"is a damaged SQLite file"):
        read(path)


def without(table: str, dropped: set[int]) -> tuple[str, list[tuple[Any, ...]]]:
    columns, content = TABLES[table]
    kept = [place for place in range(len(columns.split())) if place not in dropped]
    return " ".join(columns.split()[place] for place in kept), [tuple(row[place] for place in kept) for row in content]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_table_or_column_may_be_missing(tmp_path: Path, data: st.DataObject) -> None:
    tables = {}
    for table in data.draw(st.sets(st.sampled_from(sorted(TABLES)))):
        count = len(TABLES[table][0].split())
        dropped = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
        tables[table] = without(table, dropped)
    whole = {table for table, (columns, _) in tables.items() if columns == TABLES[table][0]}
    path = export(tmp_path / "a.sqlite", tables)
    try:
        sources = read_sources(path)
    except QrprofError:
        assert not whole & {f"{CUPTI}KERNEL", f"{CUPTI}RUNTIME", "NVTX_EVENTS"}
        return
    work = sum(len(one.trace.events[one.trace.events["kind"].isin(DEVICE_WORK)]) for one in sources)
    assert work >= 3 * (f"{CUPTI}KERNEL" in whole)
    assert "hf_" not in repr([vars(source) for source in sources])


values = st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=5) | st.binary(max_size=5)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_anywhere(tmp_path: Path, data: st.DataObject) -> None:
    tables = {}
    for table, (columns, content) in TABLES.items():
        odd = data.draw(st.lists(st.tuples(*[values] * len(columns.split())), max_size=2))
        tables[table] = (columns, [*content, *odd])
    for source in attempt(export(tmp_path / "a.sqlite", tables)):
        assert (source.trace.events["start"] <= source.trace.events["end"]).all()


def attempt(path: Path) -> list[Source]:
    """Read whatever it is: sources, or the one error a person sees."""
    try:
        return read_sources(path)
    except QrprofError:
        return []


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    damages=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=40)), max_size=5), cut=st.floats(0, 1)
)
def test_damaged_exports(tmp_path: Path, damages: list[tuple[float, bytes]], cut: float) -> None:
    whole = tmp_path / "whole.sqlite"
    content = (whole if whole.exists() else export(whole)).read_bytes()
    for place, scrap in damages:
        at = 16 + int(place * (len(content) - 16))
        content = content[:at] + scrap + content[at + len(scrap) :]
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(content[: 16 + int(cut * len(content))])
    for source in attempt(path):
        assert (source.trace.events["start"] <= source.trace.events["end"]).all()
