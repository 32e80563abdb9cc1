"""Traces as columns, their cache, and the loading of a recorded run."""

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pandas.testing import assert_frame_equal

from qrprof.profiler import load
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.events import COLUMNS, HOST
from qrprof.profiler.load import load_run
from qrprof.profiler.readers import kineto
from qrprof.profiler.trace import Trace, read_cache, write_cache

DATA = Path(__file__).parent / "data"
TRACE = DATA / "own_h200_two_streams_overlap.json.gz"
RUN: dict[str, Any] = {
    "schema_number": 1,
    "id": "20260131-235959-train",
    "created": "2026-01-31T23:59:59+00:00",
    "command": ["train.py"],
    "cwd": "/project",
    "step_source": "optimizer SGD",
    "rank": 0,
    "world_size": 2,
    "versions": {"torch": "2.11.0"},
    "devices": [],
    "threads": 4,
    "period": 1,
    "kinds": [],
    "unprofiled": [],
    "recorded": [],
    "linalg": [],
    "repeats": [],
    "notes": [],
    "trace": "rank0.trace.json.gz",
    "exit_code": 0,
}


def row(kind: str, name: str, start: int, end: int, **rest: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "start": start, "end": end, **rest}


def small() -> Trace:
    return Trace.from_rows(
        [
            row("annotation", "qrprof.step#12", 40, 41),
            row("annotation", "qrprof.step#11", 5, 6),
            row("annotation", "qrprof.step#x", 7, 8),
            row("op", "inner", 10, 12, shapes="[[2]]", dtypes="float"),
            row("op", "outer", 10, 30, sequence=3),
            row("runtime", "cudaLaunchKernel", 11, 12, correlation=9),
            row("kernel", "gemm", 13, 20, device=0, track=7, correlation=9),
            row("copy", "Memcpy HtoD", 14, 19, device=1, track=8, bytes=64),
            row("sync", "Stream Sync", 14, 19, device=1, track=8),
        ]
    )


def test_columns_and_defaults() -> None:
    events = small().events
    assert {name: str(kind) for name, kind in events.dtypes.items()} == COLUMNS
    marks = events.iloc[0]
    assert (marks["device"], marks["correlation"], marks["sequence"], marks["shapes"]) == (HOST, 0, -1, "")


def test_rows_are_sorted_outer_first() -> None:
    assert small().events["name"].tolist()[:4] == ["qrprof.step#11", "qrprof.step#x", "outer", "inner"]


def test_slices_and_marks() -> None:
    trace = small()
    assert trace.device_work()["name"].tolist() == ["gemm", "Memcpy HtoD"]
    assert trace.of_kind("op", "runtime")["name"].tolist() == ["outer", "inner", "cudaLaunchKernel"]
    assert trace.marks() == [(11, 5), (12, 40)]


def test_empty_trace() -> None:
    trace = Trace.from_rows([])
    assert {name: str(kind) for name, kind in trace.events.dtypes.items()} == COLUMNS
    assert trace.marks() == []
    assert trace.device_work().empty


# --- the cache ---


@pytest.mark.parametrize("name", ["rows", "file"])
def test_cache_gives_the_same_trace(name: str, tmp_path: Path) -> None:
    read = small() if name == "rows" else kineto.read(TRACE)
    trace = Trace(read.events, 1790857026000000001, ("3 events were left out: 'a, b'", "a second line"))
    write_cache(trace, tmp_path / "rank0.events.parquet")
    cached = read_cache(tmp_path / "rank0.events.parquet")
    assert cached
    assert_frame_equal(cached.events, trace.events)
    assert (cached.base_ns, cached.warnings) == (trace.base_ns, trace.warnings)
    assert [path.name for path in tmp_path.iterdir()] == ["rank0.events.parquet"]


def test_cache_that_is_no_cache_is_none(tmp_path: Path) -> None:
    path = tmp_path / "rank0.events.parquet"
    assert read_cache(path) is None
    write_cache(small(), path)
    whole = path.read_bytes()
    for broken in (b"", b"text", whole[: len(whole) // 2], whole[:8] + bytes(200) + whole[208:], whole[:-8] + bytes(8)):
        path.write_bytes(broken)
        assert read_cache(path) is None


def test_cache_of_other_columns_or_schema_is_none(tmp_path: Path) -> None:
    path = tmp_path / "rank0.events.parquet"
    write_cache(small(), path)
    table = pq.read_table(path)
    for other in (
        table.drop_columns(["bytes"]),
        table.replace_schema_metadata({b"schema": b"0", b"base_ns": b"0", b"warnings": b""}),
        table.replace_schema_metadata(None),
    ):
        pq.write_table(other, path)
        assert read_cache(path) is None


def test_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "rank0.events.parquet").mkdir()
    with pytest.raises(OSError, match="rank0"):
        write_cache(small(), tmp_path / "rank0.events.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["rank0.events.parquet"]


# --- a recorded run ---


def run_folder(folder: Path, *ranks: int) -> Path:
    for rank in ranks:
        trace = f"rank{rank}.trace.json.gz"
        name = "run.json" if rank == 0 else f"run.rank{rank}.json"
        (folder / name).write_text(json.dumps(RUN | {"rank": rank, "trace": trace}))
        shutil.copyfile(TRACE, folder / trace)
        os.utime(folder / trace, ns=(10**18, 10**18))
    return folder


def test_run_is_loaded_from_the_trace_then_from_the_cache(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, 0, 1)
    run, first = load_run(folder, rank=1)
    assert (run.rank, len(first.events)) == (1, 170)
    assert (folder / "rank1.events.parquet").is_file()
    (folder / "rank1.trace.json.gz").write_bytes(b"no trace any more")
    os.utime(folder / "rank1.trace.json.gz", ns=(10**18, 10**18))
    _, second = load_run(folder, rank=1)
    assert_frame_equal(second.events, first.events)
    assert second.base_ns == first.base_ns == 1790857026000000000


def test_trace_newer_than_its_cache_is_read_again(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, 0)
    load_run(folder)
    event = '{"ph": "X", "cat": "cpu_op", "name": "new", "pid": 1, "tid": 1, "ts": 1, "dur": 1}'
    (folder / "rank0.trace.json.gz").write_bytes(gzip.compress(f"[{event}]".encode()))
    later = (folder / "rank0.events.parquet").stat().st_mtime_ns
    os.utime(folder / "rank0.trace.json.gz", ns=(later, later))
    _, trace = load_run(folder)
    assert trace.events["name"].tolist() == ["new"]


def test_broken_cache_is_replaced(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, 0)
    (folder / "rank0.events.parquet").write_bytes(b"half a file")
    assert len(load_run(folder)[1].events) == 170
    cached = read_cache(folder / "rank0.events.parquet")
    assert cached
    assert len(cached.events) == 170


def test_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(trace: Trace, path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(load, "write_cache", refuse)
    folder = run_folder(tmp_path, 0)
    assert len(load_run(folder)[1].events) == 170
    assert not (folder / "rank0.events.parquet").exists()


@pytest.mark.parametrize(("ranks", "named"), [((0, 2, 10), "0, 2, 10"), ((), "none")])
def test_missing_rank_names_the_ranks_there_are(ranks: tuple[int, ...], named: str, tmp_path: Path) -> None:
    folder = run_folder(tmp_path, *ranks)
    (folder / "run.rankx.json").write_text("{}")
    with pytest.raises(QrprofError, match=f"has no rank 1; its ranks: {named}$") as caught:
        load_run(folder, rank=1)
    assert caught.value.exit_code == Exit.USAGE


def test_missing_trace_is_said(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, 0)
    (folder / "rank0.trace.json.gz").unlink()
    with pytest.raises(QrprofError, match=r"cannot read .*rank0\.trace\.json\.gz"):
        load_run(folder)
