"""Containment, tried with shells instead of candidates: what can be seen and changed, and that nothing stays behind."""

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import psutil
import pytest

from qrprof.planner.gate import sandbox
from qrprof.planner.gate.keeper import TOO_MANY, remove
from qrprof.planner.gate.sandbox import Layer, environment, files, keeper_command, outermost

LAYERS: tuple[Layer, ...] = ("bubblewrap", "namespaces", "none")
TASKS = 40
DAEMON = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.closerange(0, 100)
        while True:
            time.sleep(1)
    os._exit(0)
os.wait()
open("started", "w").close()
"""
MANY = f"""
import os, time
for _ in range(7):
    os.fork()
time.sleep({100})
"""


working = functools.cache(sandbox.works)


def if_working(layer: Layer) -> Layer:
    if not working(layer):
        pytest.skip(f"{layer} does not work on this machine")
    return layer


@pytest.fixture(params=LAYERS)
def layer(request: pytest.FixtureRequest) -> Layer:
    return if_working(request.param)


@pytest.fixture(params=LAYERS[:2])
def contained(request: pytest.FixtureRequest) -> Layer:
    return if_working(request.param)


@contextmanager
def kept(layer: Layer, folder: Path, command: list[str]) -> Iterator[tuple["subprocess.Popen[str]", BinaryIO]]:
    """The command's keeper, and the end of its lifeline that holds it."""
    lifeline, end = os.pipe()
    with (
        os.fdopen(end, "wb") as held,
        subprocess.Popen(
            keeper_command(layer, files(folder), command, lifeline, [], TASKS),
            env=environment(folder, os.environ),
            pass_fds=[lifeline],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as keeper,
    ):
        os.close(lifeline)
        try:
            yield keeper, held
        finally:
            held.close()


def shell(layer: Layer, folder: Path, script: str) -> str:
    """What a shell prints."""
    with kept(layer, folder, ["/bin/sh", "-c", script]) as (keeper, _):
        return keeper.communicate()[0]


def python(layer: Layer, folder: Path, script: str) -> int:
    """How a python ends."""
    with kept(layer, folder, [sys.executable, "-I", "-S", "-c", script]) as (keeper, _):
        return keeper.wait()


def of_folder(folder: Path) -> list[psutil.Process]:
    """Processes of any session that were started in the folder's environment and still run."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


# --- what it sees


def test_only_its_own_folder_can_be_written(contained: Layer, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    folders = [tmp_path, Path(__file__).parent, *map(Path, ("/usr", "/tmp", "/dev", sys.prefix))]
    places = [folder / f"qrprof-test-{os.getpid()}" for folder in folders]
    script = "; ".join(f"echo x > {place}" for place in [*places, own / "made"])
    shell(contained, own, script)
    assert (own / "made").read_text() == "x\n"
    assert not any(place.exists() for place in places)


def test_home_and_the_folder_of_the_project_are_hidden(
    contained: Layer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("home", "project", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "secret").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project")
    printed = shell(contained, tmp_path / "own", f"ls -R {tmp_path}")
    assert printed.count("secret") == 1


def test_shared_memory_of_others_is_hidden(contained: Layer, tmp_path: Path) -> None:
    file = Path("/dev/shm", f"qrprof-test-{os.getpid()}")
    file.touch()
    try:
        assert file.name not in shell(contained, tmp_path, "ls /dev/shm; echo x > /dev/shm/y && ls /dev/shm")
    finally:
        file.unlink()


def test_there_is_no_network(contained: Layer, tmp_path: Path) -> None:
    assert {
        line.split(":")[0].strip() for line in shell(contained, tmp_path, "cat /proc/net/dev").splitlines()[2:]
    } <= {"lo"}


def test_other_processes_are_not_seen(contained: Layer, tmp_path: Path) -> None:
    numbers = [int(name) for name in shell(contained, tmp_path, "ls /proc").split() if name.isdigit()]
    assert 0 < len(numbers) <= 4


def test_there_are_no_capabilities_and_no_way_to_new_ones(contained: Layer, tmp_path: Path) -> None:
    printed = shell(contained, tmp_path, "grep -E 'Cap|NoNewPrivs' /proc/self/status")
    assert dict(line.split() for line in printed.splitlines()) == {
        **{f"Cap{kind}:": "0" * 16 for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")},
        "NoNewPrivs:": "1",
    }


def test_the_machines_settings_and_disks_are_out_of_reach(contained: Layer, tmp_path: Path) -> None:
    printed = shell(
        contained, tmp_path, "echo x > /proc/sys/kernel/core_pattern; ls /dev; echo y > /dev/null && echo ok"
    )
    assert "Read-only file system" in printed
    assert printed.endswith("ok\n")
    assert not {"vda", "sda", "nvme0n1", "kvm", "kmsg", "mem"} & set(printed.split())


def test_no_key_reaches_the_environment(layer: Layer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "MY_TOKEN", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH", "LD_PRELOAD", "SOMETHING"):
        monkeypatch.setenv(name, "sekret")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    printed = shell(layer, tmp_path, "env; cat /proc/*/environ")
    assert "sekret" not in printed
    assert "OMP_NUM_THREADS=3" in printed


def test_caches_and_home_are_in_its_folder(tmp_path: Path) -> None:
    given = environment(tmp_path, {"PATH": "/bin", "HOME": "/home/me", "TRITON_CACHE_DIR": "/home/me/triton"})
    folders = {name for name, value in given.items() if value.startswith(str(tmp_path))}
    assert folders >= {"HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME"}
    assert given["PATH"] == "/bin"


def test_what_is_hidden_leaves_the_system_alone() -> None:
    paths = [Path(text) for text in ("/", "/usr", "/home/a/b", "/home/a", "/home/ab", "/tmp")]
    assert outermost(paths) == [Path("/home/a"), Path("/home/ab"), Path("/tmp")]


def test_code_that_a_candidate_needs_is_never_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(sandbox.__file__).resolve().parent)
    hidden = files(tmp_path).hidden
    assert str(Path.cwd()) not in hidden
    assert any(Path.home().is_relative_to(folder) for folder in hidden)


# --- how it ends


def test_it_ends_as_the_command_does(layer: Layer, tmp_path: Path) -> None:
    assert python(layer, tmp_path, "raise SystemExit(7)") == 7
    killed = python(layer, tmp_path, "import os; os.kill(os.getpid(), 11)")
    assert killed in (-signal.SIGSEGV, 128 + signal.SIGSEGV)


def test_what_left_its_session_ends_with_the_command(layer: Layer, tmp_path: Path) -> None:
    assert python(layer, tmp_path, DAEMON) == 0
    assert (tmp_path / "started").exists()
    assert of_folder(tmp_path) == []


def test_everything_ends_when_the_lifeline_is_cut(layer: Layer, tmp_path: Path) -> None:
    with kept(layer, tmp_path, [sys.executable, "-I", "-S", "-c", DAEMON + "time.sleep(1000)"]) as (keeper, held):
        while not (tmp_path / "started").exists():
            assert keeper.poll() is None
            time.sleep(0.01)
        assert of_folder(tmp_path)
        held.close()
        keeper.wait()
        assert of_folder(tmp_path) == []
        assert not tmp_path.exists()


def test_everything_ends_when_the_gate_is_killed(layer: Layer, tmp_path: Path) -> None:
    gate = f"""
import os, subprocess, sys, time
lifeline, held = os.pipe()
subprocess.Popen({[*keeper_command(layer, files(tmp_path), ["/bin/sleep", "1000"], 99, [], TASKS)]!r}, pass_fds=[99])
"""
    gate = gate.replace("subprocess.Popen", "os.dup2(lifeline, 99); subprocess.Popen")
    script = gate + "\nprint('up', flush=True)\ntime.sleep(1000)"
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment(tmp_path, os.environ),
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        parent.kill()
    while of_folder(tmp_path):
        time.sleep(0.01)


def test_too_many_tasks_are_ended(layer: Layer, tmp_path: Path) -> None:
    assert python(layer, tmp_path, MANY) == TOO_MANY
    assert of_folder(tmp_path) == []


def test_a_layer_that_cannot_be_set_up_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "KEEPER", Path("/nonexistent"))
    assert not sandbox.works("namespaces")


def test_a_folder_is_removed_however_it_was_made(tmp_path: Path) -> None:
    folder, beside = tmp_path / "a", tmp_path / "b"
    beside.touch()
    for name in ("1", "2"):
        (folder / name / "x").mkdir(parents=True)
        (folder / name / "x" / "file").touch()
        (folder / name / "link").symlink_to(beside)
        (folder / name).chmod(0o500)
    (folder / "/".join("deep" for _ in range(20))).mkdir(parents=True)
    remove(str(folder))
    assert list(tmp_path.iterdir()) == [beside]
