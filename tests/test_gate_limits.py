"""What processes and files may take: counted on real processes and files, and judged with known figures."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from qrprof.planner.gate import limits
from qrprof.planner.gate.limits import Limits, Usage, disk_exceeded, exceeded, files_in, usage

MIB = 1 << 20
FEW = Limits(memory_bytes=40 * MIB, tasks=5)
# A child of its own, with a thread more, that holds 64 MiB.
SCRIPT = f"""
import subprocess, sys, threading
held = bytes({64 * MIB})
held = bytearray(held)
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=sys.stdin)
threading.Thread(target=child.wait).start()
print("up", flush=True)
"""


@pytest.fixture(scope="module")
def root() -> Iterator[psutil.Process]:
    """A process whose descendants are the two."""
    keeper = "import subprocess, sys; subprocess.run([sys.executable, '-I', '-S', '-c', sys.argv[1]])"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", keeper, SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield psutil.Process(process.pid)
        process.communicate("\n")


def test_usage_counts_processes_threads_and_memory(root: psutil.Process) -> None:
    now = usage(root)
    assert len(now.pids) == 2
    assert now.tasks == 3
    assert 64 * MIB < now.resident_bytes < 200 * MIB


def test_what_was_there_before_is_not_counted(root: psutil.Process) -> None:
    assert exceeded(root, usage(root), FEW) is None


def test_memory_beyond_the_limit(root: psutil.Process) -> None:
    now = usage(root)
    found = exceeded(root, replace(now, resident_bytes=now.resident_bytes - 60 * MIB), FEW)
    assert found is not None
    assert found[0] == "memory-limit"
    assert "40 MiB are allowed" in found[1]


def test_shared_memory_beyond_the_limit(root: psutil.Process) -> None:
    now = usage(root)
    found = exceeded(root, replace(now, shared_bytes=now.shared_bytes - 60 * MIB), FEW)
    assert found is not None
    assert found[0] == "memory-limit"


def test_tasks_beyond_the_limit(root: psutil.Process) -> None:
    found = exceeded(root, replace(usage(root), tasks=-3), FEW)
    assert found == ("task-limit", "it started 6 threads and processes; 5 are allowed")


def test_a_process_that_is_gone_uses_nothing() -> None:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "pass"]) as process:
        root = psutil.Process(process.pid)
    assert usage(root) == Usage(frozenset(), 0, usage(root).shared_bytes, 0)


def test_files_are_counted_with_their_blocks(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(bytes(3 * MIB))
    (tmp_path / "elsewhere").symlink_to("/")
    files, taken = files_in(tmp_path)
    assert files == 3
    assert 3 * MIB <= taken < 4 * MIB
    with tempfile.TemporaryFile() as output:
        assert disk_exceeded(tmp_path, output, Limits(disk_bytes=4 * MIB)) is None
        output.write(bytes(2 * MIB))
        output.flush()
        assert disk_exceeded(tmp_path, output, Limits(disk_bytes=4 * MIB)) == (
            "disk-full",
            "it wrote 5 MiB of files; 4 MiB are allowed",
        )


def test_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_FILES", 10)
    for number in range(11):
        (tmp_path / str(number)).touch()
    with tempfile.TemporaryFile() as output:
        assert disk_exceeded(tmp_path, output, Limits()) == ("disk-full", "it made more than 10 files")
