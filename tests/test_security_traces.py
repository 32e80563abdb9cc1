"""Traces that were made to do harm: one sentence, or what can be read of them; bounded memory, no file elsewhere."""

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from qrprof.profiler.read import read
from qrprof.profiler.store import run_folders
from qrprof.tui.cli import run

MB = 1 << 20
PEAK_MB = 1200  # of a child that meets a bomb; without bounds each of them takes more than 2 GB, or a disk
SPAN = '{"ph":"X","cat":"cpu_op","name":%s,"pid":1,"tid":%d,"ts":%s,"dur":%s,"args":%s}'
DEEP = 1_000_000  # levels


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def span(name: str = '"aten::mm"', ts: str = "1", dur: str = "2", args: str = "{}", thread: int = 1) -> str:
    return SPAN % (name, thread, ts, dur, args)


def trace(*spans: str, head: str = "") -> bytes:
    return f'{{"schemaVersion":1,{head}"traceEvents":[{",".join(spans)}]}}'.encode()


def lists(levels: int) -> str:
    return "[" * levels + "]" * levels


# --- what is in the events

READABLE = {
    "args a million levels deep": trace(span(), span(args=lists(DEEP))),
    "objects a million levels deep": trace(span(), span(args='{"a":' * DEEP + "1" + "}" * DEEP)),
    "lists that are never closed": trace(span())[:-2] + b"," + b"[" * DEEP,
    "a header a million levels deep": trace(span(), head=f'"x":{lists(DEEP)},'),
    "a name of many levels": trace(span(), span(name=lists(900))),
    "dtypes of many levels": trace(span(), span(args=f'{{"Input type":{lists(1000)}}}')),
    "shapes of many levels": trace(span(), span(args=f'{{"Input Dims":{lists(1000)}}}')),
    "a device's name of many levels": trace(span(), head=f'"deviceProperties":[{{"name":{lists(960)}}}],'),
    "metadata that begins again and again": trace(span(), head='"distributedInfo":[' * 20_000),
    "times that are none": trace(span(), *(span(ts=t) for t in ("NaN", "Infinity", "-Infinity", "1e999"))),
    "durations that are none": trace(span(), *(span(dur=t) for t in ("NaN", "Infinity", "-1e999", "null"))),
    "times of a million digits": trace(span(), span(ts="9" * DEEP), span(dur="9" * DEEP)),
    "exponents without end": trace(span(), span(ts="1e999999999"), span(ts='"1e-999999999"')),
    "numbers of a million digits": trace(span(), span(args='{"Sequence number":' + "9" * DEEP + "}")),
    "correlations beyond 64 bits": trace(span(), span(args=f'{{"correlation":{1 << 80}}}')),
    "keys given twice": trace(span().replace('"dur"', '"ts":7,"dur"'), head='"schemaVersion":2,"schemaVersion":[],'),
    "durations whose sum is beyond 64 bits": trace(
        *(span(ts="0", dur="4000000000000000", thread=thread) for thread in range(8))
    ),
}


@pytest.mark.parametrize("content", READABLE.values(), ids=READABLE)
def test_what_can_be_read_of_a_hostile_trace_is_read(
    content: bytes, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("trace.json").write_bytes(content)
    assert run(["import", "trace.json"]) == 0
    for words in (["rank", "--json"], ["launches", "--json"], ["gaps", "--json"]):
        capsys.readouterr()
        assert run(words) == 0
        said = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
        assert min(figures(said), default=0) >= -1  # a sum that has overflowed is far below


def figures(value: Any) -> list[float]:
    """All numbers of a record."""
    if isinstance(value, dict | list):
        return [one for item in (value.values() if isinstance(value, dict) else value) for one in figures(item)]
    return [value] if isinstance(value, int | float) else []


def test_a_name_cannot_speak_to_the_terminal(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "mm\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2066\u200b\r\n"
    name = json.dumps(hostile)
    Path(f"{hostile[:8]}.json").write_bytes(trace(span(name=name), span(name=json.dumps("A" * MB))))
    assert run(["import", f"{hostile[:8]}.json"]) == 0
    for words in (["rank"], ["runs"], ["launches"], ["rank", "--json"]):
        assert run(words) == 0
    assert run(["import", f"{hostile}.json"]) == 2
    out, err = capsys.readouterr()
    assert [char for char in out + err if not char.isprintable() and char != "\n"] == []
    assert max(map(len, err.splitlines())) < 1000


# --- archives


def packed(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", headers: Mapping[str, str] | None = None
) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.pax_headers = kind, link, dict(headers or {})
    return made


@pytest.mark.parametrize("name", ["../../planted.json", "{}/planted.json", "../rank0.json", "a" * 5000])
def test_the_name_of_a_member_is_no_place(name: str, here: Path, tmp_path: Path) -> None:
    path = packed(tmp_path / "ranks.tar.gz", (member(name.format(tmp_path)), trace(span())))
    before = set(tmp_path.rglob("*"))
    assert len(read(path).events) == 1
    assert set(tmp_path.rglob("*")) == before


def test_links_and_devices_of_an_archive_are_passed_over(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret.json"
    secret.write_bytes(trace(span()))
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)
    members = [(member(f"rank{n}.json", kind, str(secret)), b"") for n, kind in enumerate(kinds)]
    assert run(["import", str(packed(tmp_path / "ranks.tar", *members))]) == 1
    assert "is an archive without traces" in capsys.readouterr().err
    assert list(run_folders(here)) == []


def claimed(tmp_path: Path) -> Path:
    """A member of 10 GB, it says."""
    head = member("rank0.json")
    head.size = 10 << 30
    path = tmp_path / "ranks.tar"
    path.write_bytes(head.tobuf() + trace(span()))
    return path


def sparse(tmp_path: Path) -> Path:
    """One of 90 TB of which nothing is stored."""
    headers = {"GNU.sparse.size": "9" * 14, "GNU.sparse.map": "0,0"}
    return packed(tmp_path / "ranks.tar", (member("rank0.json", headers=headers), b""))


def no_number(tmp_path: Path) -> Path:
    headers = {"GNU.sparse.size": "many", "GNU.sparse.map": "1,y"}
    return packed(tmp_path / "ranks.tar", (member("rank0.json", headers=headers), trace(span())))


def endless_number(tmp_path: Path) -> Path:
    return packed(tmp_path / "ranks.tar", (member("rank0.json", headers={"size": "9" * 3000}), trace(span())))


@pytest.mark.parametrize("make", [claimed, sparse, no_number, endless_number])
def test_sizes_that_an_archive_claims_are_not_believed(
    make: Callable[[Path], Path], here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(tmp_path)
    assert run(["import", str(path)]) == 1
    said = capsys.readouterr().err
    assert f"{path} is a damaged archive" in said or f"{path} is an archive without traces" in said
    assert list(run_folders(here)) == []


# --- bombs

# getrusage would say how much the parent held, if that is more.
CHILD = """
import sys
from pathlib import Path
from qrprof.tui.cli import run
code = run(["import", sys.argv[1]])
(most,) = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(code, int(most) // 1024)
"""


def unpacking_to(path: Path, head: bytes, piece: bytes, size: int = 1024 * MB) -> Path:
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(head)
        for _ in range(size // len(piece)):
            file.write(piece)
    return path


def spaces(tmp_path: Path) -> Path:
    return unpacking_to(tmp_path / "trace.json.gz", b"", b" " * MB)


def one_name(tmp_path: Path) -> Path:
    return unpacking_to(tmp_path / "trace.json.gz", trace(span())[:-2] + b',{"ph":"X","name":"', b"A" * MB)


def spans(tmp_path: Path) -> Path:
    return unpacking_to(tmp_path / "trace.json.gz", b'{"traceEvents":[', (span() + ",").encode() * 10_000)


def a_member(tmp_path: Path) -> Path:
    head = member("rank0.json")
    head.size = 1024 * MB
    return unpacking_to(tmp_path / "ranks.tar.gz", head.tobuf() + b'{"schemaVersion":1,"traceEvents":[', b" " * MB)


def a_header(tmp_path: Path) -> Path:
    head = member("header", tarfile.XHDTYPE)
    head.size = 1024 * MB
    return unpacking_to(tmp_path / "ranks.tar.gz", head.tobuf(tarfile.GNU_FORMAT), b" " * MB)


def members(tmp_path: Path) -> Path:
    return unpacking_to(tmp_path / "ranks.tar.gz", b"", member("x").tobuf() * 2048)


BOMBS = [
    spaces,
    one_name,
    pytest.param(spans, marks=pytest.mark.slow),
    a_member,
    a_header,
    pytest.param(members, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("make", BOMBS)
def test_a_bomb_is_refused_in_bounded_memory(make: Callable[[Path], Path], here: Path, tmp_path: Path) -> None:
    path = make(tmp_path)
    left = tmp_path / "temporary"
    left.mkdir()
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(left)},
        capture_output=True,
        text=True,
        check=True,
    )
    code, peak_mb = map(int, child.stdout.split())
    assert code == 1
    assert child.stderr.startswith("qrprof: ")
    assert child.stderr.count("\n") == 1
    refused = ("unpacks to over 200 times its size", "is a damaged archive", "holds over 65,536 files")
    assert any(reason in child.stderr for reason in refused)
    assert peak_mb < PEAK_MB
    assert list(run_folders(here)) == []
    assert list(left.iterdir()) == []
