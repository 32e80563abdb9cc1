"""A verification that is ended from outside takes all that it has started, and its files, with it."""

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from conftest import Workshop, heeded
from verify_cases import accepted

# The program tells its own process, and a worker's as a data loader would have one, and goes on for minutes.
ENDLESS = """
import os, pathlib, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
pathlib.Path("pids").write_text(f"{os.getpid()} {worker.pid}")
time.sleep(300)
"""


def told(folder: Path, process: "subprocess.Popen[str]") -> list[int]:
    """The processes of the program, once they run."""
    file = folder / "pids"
    while not (file.exists() and len(file.read_text().split()) == 2):
        assert process.poll() is None
        time.sleep(0.05)
    return [int(word) for word in file.read_text().split()]


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_program_too_and_leaves_no_files(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    monkeypatch.setenv("QRPROF_CONFIG", str(workshop.folder / "config"))
    accepted(workshop.folder, included=True)
    workshop.write("train.py", ENDLESS)
    (workshop.folder / "tmp").mkdir()
    options = ("--json", "verified.json")
    with heeded(number):
        process = workshop.start("-m", "qrprof", "verify", *options, "train.py", TMPDIR=str(workshop.folder / "tmp"))
    pids = told(workshop.folder, process)
    process.send_signal(number)
    try:
        ended = workshop.ended(process)
        assert ended.code == code, ended.err
        assert "Traceback" not in ended.err
        assert all(map(gone, pids))
        assert list((workshop.folder / "tmp").iterdir()) == []
        assert not (workshop.folder / "verified.json").exists()
    finally:
        for pid in filter(lambda pid: not gone(pid), pids):
            os.kill(pid, signal.SIGKILL)
