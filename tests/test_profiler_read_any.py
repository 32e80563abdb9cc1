"""Whatever bytes a file holds, reading gives a trace or the one error that a person sees."""

import gzip
import io
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.read import ranked, read, read_all

EVENT = b'{"ph":"X","cat":"kernel","name":"gemm","ts":10.001,"dur":2.5,"args":{"device":0,"stream":7,"correlation":4}}'
TRACE = (
    b'{"schemaVersion":1,"distributedInfo":{"rank":0,"world_size":2},"traceEvents":[%s,%s],"baseTimeNanoseconds":5}'
    % (
        EVENT,
        EVENT,
    )
)


def archive(*contents: bytes, mode: Any = "w") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as tar:
        for number, content in enumerate(contents):
            member = tarfile.TarInfo(f"rank{number}.json")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def database(folder: Path) -> bytes:
    path = folder / "made.sqlite"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('CREATE TABLE NVTX_EVENTS (start, "end", text, globalTid)')
        connection.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, 'aten::mm', 5)", [(n, n + 1) for n in range(50)])
    return path.read_bytes()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, ...]:
    second = TRACE.replace(b'"rank":0', b'"rank":1')
    export = database(tmp_path_factory.mktemp("made"))
    tars = (archive(TRACE, second), archive(gzip.compress(TRACE), second, mode="w:gz"))
    return (b"", TRACE, gzip.compress(TRACE), b"[" + EVENT + b"]", export, *tars)


def attempt(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        traces = [read(path), *(source.trace for _, source in ranked(read_all([path])))]
    except QrprofError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    for trace in traces:
        assert len(trace.events) > 0
        assert trace.events["start"].is_monotonic_increasing
        assert (trace.events["start"] <= trace.events["end"]).all()


def test_whole_files_are_read(files: tuple[bytes, ...], tmp_path: Path) -> None:
    path = tmp_path / "trace"
    for content, ranks in zip(files[1:], (1, 1, 1, 1, 2, 2), strict=True):
        path.write_bytes(content)
        assert len(list(ranked(read_all([path])))) == ranks


@settings(deadline=None)
@given(
    content=st.binary(max_size=600),
    start=st.sampled_from([b"", b"SQLite format 3\0", b"\x1f\x8b\x08\0", b"[{", b"\0" * 257 + b"ustar"]),
)
def test_random_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes, start: bytes) -> None:
    attempt(tmp_path_factory.getbasetemp() / "random", start + content)


@settings(deadline=None)
@given(
    which=st.integers(0, 6),
    damages=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), st.binary(max_size=8)), max_size=4),
    length=st.floats(0, 1),
)
def test_damaged_files(
    files: tuple[bytes, ...], tmp_path_factory: pytest.TempPathFactory, which: int, damages: Any, length: float
) -> None:
    content = files[which]
    for place, count, scrap in damages:
        at = int(place * len(content))
        content = content[:at] + scrap + content[at + count :]
    attempt(
        tmp_path_factory.getbasetemp() / "damaged", content[: round(length * len(content))] if length < 0.5 else content
    )
