"""The ledger's file: made, refused, shared by processes, and whole after a kill."""

import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from filelock import FileLock

from qrprof.planner import ledger
from qrprof.planner.ledger import SCHEMA, ledger_file, opened
from qrprof.planner.predictions import listed
from qrprof.profiler.errors import QrprofError

# Remembers batches of three until it is stopped, and says which are committed.
WRITER = """\
import sys
from datetime import UTC, datetime
from pathlib import Path
from qrprof.planner.ledger import opened
from qrprof.planner.predictions import Forecast, remember

def forecast(scenario):
    numbers = dict(base_ns=10, low_ns=1, mid_ns=None, high_ns=10)
    return Forecast(run_id="r", source="rank", scenario=scenario, basis="CEILING", device="d", version="v", **numbers)

name, batches = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for n in range(batches):
    with opened(Path.cwd()) as connection:
        remember(connection, [forecast(f"{name} {n} {part}") for part in "abc"], datetime.now(UTC))
    print(n, flush=True)
"""


def writer(root: Path, name: str, batches: int) -> "subprocess.Popen[str]":
    """A process that is ready to write, and begins when it gets a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, name, str(batches)],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def begin(process: "subprocess.Popen[str]") -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def scenarios(root: Path) -> list[str]:
    with opened(root) as connection:
        return sorted(one.prediction.scenario for one in listed(connection))


def refusal(root: Path) -> str:
    with pytest.raises(QrprofError) as caught, opened(root) as connection:
        listed(connection)
    message = str(caught.value)
    assert str(ledger_file(root)) in message
    assert "\n" not in message
    return message


def put(root: Path, content: bytes) -> None:
    ledger_file(root).parent.mkdir()
    ledger_file(root).write_bytes(content)


# --- made


def test_a_new_ledger(tmp_path: Path) -> None:
    with opened(tmp_path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA
    store = tmp_path / ".qrprof"
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    assert (store / ".gitignore").read_text() == "*\n"
    assert ledger_file(tmp_path) == store / "ledger.sqlite"
    assert scenarios(tmp_path) == []


def test_an_empty_file_becomes_a_ledger(tmp_path: Path) -> None:
    """What a kill between making the file and its tables leaves behind."""
    put(tmp_path, b"")
    assert scenarios(tmp_path) == []


# --- refused


@pytest.mark.parametrize("schema", [SCHEMA + 1, 99, -1])
def test_an_unknown_schema_is_left_to_the_version_that_wrote_it(tmp_path: Path, schema: int) -> None:
    with opened(tmp_path) as connection:
        connection.execute(f"PRAGMA user_version = {schema}")
    before = ledger_file(tmp_path).read_bytes()
    said = refusal(tmp_path)
    assert f"has schema {schema}, this qrprof reads {SCHEMA}: open it with the version that wrote it" in said
    assert ledger_file(tmp_path).read_bytes() == before


def truncated(whole: bytes) -> bytes:
    return whole[: len(whole) // 2]


def overwritten(whole: bytes) -> bytes:
    """All pages but the first, which holds the schema."""
    return whole[:4096] + b"\xa5" * (len(whole) - 4096)


@pytest.mark.parametrize("damage", [truncated, overwritten, lambda _: b"not a database" * 100])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    assert scenarios(tmp_path) == []
    path = ledger_file(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    said = refusal(tmp_path)
    assert "; move it away, and a new one is made, without the verdicts, predictions and accepted swaps of th" in said
    path.unlink()
    assert scenarios(tmp_path) == []


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    put(tmp_path, b"")
    with closing(sqlite3.connect(ledger_file(tmp_path))) as other:
        other.execute("CREATE TABLE predictions (weather TEXT)")
    assert "table predictions already exists; move it away" in refusal(tmp_path)
    with closing(sqlite3.connect(ledger_file(tmp_path))) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("predictions",)]


def test_a_place_that_is_no_file(tmp_path: Path) -> None:
    ledger_file(tmp_path).mkdir(parents=True)
    assert "make it and its folder writable" in refusal(tmp_path)


def test_a_full_disk(tmp_path: Path) -> None:
    def fill() -> None:
        with opened(tmp_path) as connection:
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages}")
            connection.execute("CREATE TABLE more (text TEXT)")

    with pytest.raises(QrprofError, match="database or disk is full; make room"):
        fill()
    assert scenarios(tmp_path) == []


# --- shared


def test_a_locked_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scenarios(tmp_path) == []
    monkeypatch.setattr(ledger, "BUSY_S", 0.0)
    with opened(tmp_path) as other:
        other.execute("BEGIN IMMEDIATE")
        assert scenarios(tmp_path) == []  # reading waits for nobody
        with pytest.raises(QrprofError, match="is locked; try again"), opened(tmp_path) as connection:
            connection.execute("BEGIN IMMEDIATE")


def test_a_ledger_that_another_process_is_making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, b"")
    monkeypatch.setattr(ledger, "BUSY_S", 0.0)
    with FileLock(ledger_file(tmp_path).with_suffix(".lock")):
        assert "another process makes it; try again" in refusal(tmp_path)


def test_processes_make_and_write_one_ledger_at_once(tmp_path: Path) -> None:
    names, batches = ["one", "two", "three"], 20
    writers = [writer(tmp_path, name, batches) for name in names]
    for process in writers:
        begin(process)
    for process in writers:
        assert (process.communicate(timeout=120)[1], process.returncode) == ("", 0)
    assert scenarios(tmp_path) == sorted(f"{name} {n} {p}" for name in names for n in range(batches) for p in "abc")


@pytest.mark.parametrize("after", [1, 2, 7, 25])
def test_a_kill_loses_nothing_that_was_committed(tmp_path: Path, after: int) -> None:
    """Killed in the middle of a later write, which is there whole or not at all."""
    process = writer(tmp_path, "it", 1_000_000)
    with process:
        begin(process)
        assert process.stdout
        committed = [int(process.stdout.readline()) for _ in range(after)]
        process.kill()
        committed += [int(line) for line in process.stdout.read().splitlines()]
    assert process.returncode == -signal.SIGKILL
    kept = scenarios(tmp_path)
    assert {f"it {n} {part}" for n in committed for part in "abc"} <= set(kept)
    assert len(kept) - 3 * len(committed) in (0, 3)
    with opened(tmp_path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_a_kill_before_the_write_ahead_log_is_folded_in(tmp_path: Path) -> None:
    """As a killed process leaves it: the rows are in the log beside the file, not in the file."""
    with opened(tmp_path / "live") as connection:
        connection.execute(
            "INSERT INTO predictions VALUES (1, 'r', '', 'rank', 'kept', 'CEILING', 10, 1, NULL, 10, 'd', 'v')"
        )
        shutil.copytree(tmp_path / "live", tmp_path / "killed")
    assert scenarios(tmp_path / "killed") == ["kept"]
