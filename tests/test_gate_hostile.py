"""Candidates that crash, hang, forge and flood: each ends for its reason, and nothing of it is left running."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import torch

from qrprof.planner.gate import sandbox
from qrprof.planner.gate.limits import Limits
from qrprof.planner.gate.replies import Ended
from qrprof.planner.gate.sandbox import Layer
from qrprof.planner.gate.worker import ProcessWorker, started


class Hostile(NamedTuple):
    body: str  # of candidate(x)
    reason: str
    words: str = ""  # in the sentence
    quick: bool = False


MIB = 1 << 20
LIMITS = Limits(wall_s=20, build_s=20, memory_bytes=256 * MIB, tasks=60, disk_bytes=64 * MIB)
IMPATIENT = Limits(wall_s=1, build_s=1)
RUBBISH = """
for fd in range(3, 200):
    try:
        os.write(fd, b"rubbish" * 9)
    except OSError:
        pass
"""
FORGED = """
import fcntl, sys
from qrprof.planner.gate import arena
def take(self, tensors):
    fd = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, {size})
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, arena.SEALS)
    return [0], {{"size": {size}, "arena": {size}}}, [fd]
sys.modules["qrprof.planner.gate.child"].Child.take = take
"""
SHAPE = """
import sys
outputs = sys.modules["qrprof.planner.gate.outputs"]
seen_as = outputs.seen_as
outputs.seen_as = lambda item, shared: {**seen_as(item, shared), "shape": [1 << 47, 1 << 47, 0]}
"""
CALLS = {
    "segfault": Hostile("ctypes.string_at(0)", "crash", "SIGSEGV", quick=True),
    "exit": Hostile("os._exit(7)", "crash", "exit code 7"),
    "abort": Hostile("os.abort()", "crash", "SIGABRT"),
    "hang": Hostile("time.sleep(1000)", "hang", "in time", quick=True),
    "stop": Hostile("os.kill(os.getpid(), signal.SIGSTOP)", "hang", "in time"),
    "rubbish": Hostile(RUBBISH, "forged", "begin", quick=True),
    "rubbish of a child": Hostile(f"if os.fork() == 0:\n{textwrap.indent(RUBBISH, '    ')}\nos.wait()", "forged"),
    "close": Hostile("os.closerange(3, 200)\ntime.sleep(1000)", "forged", "closed"),
    "forks": Hostile("for _ in range(7):\n    os.fork()\ntime.sleep(1000)", "task-limit", "60"),
    "threads": Hostile(
        "for _ in range(200):\n    threading.Thread(target=time.sleep, args=(1000,)).start()\ntime.sleep(1000)",
        "task-limit",
    ),
    "memory": Hostile("held = [torch.ones(1 << 20) for _ in range(1 << 20)]", "memory-limit", "line"),
    "memory of forks": Hostile(
        "for _ in range(2):\n    os.fork()\nm = mmap.mmap(-1, 3 << 25)\nm.write(bytes(3 << 25))\ntime.sleep(1000)",
        "memory-limit",
        "256 MiB",
    ),
    "shared memory": Hostile(
        "fd = os.memfd_create('x')\nfor _ in range(20):\n    os.write(fd, bytes(1 << 24))\ntime.sleep(1000)",
        "memory-limit",
        "256 MiB",
    ),
    "disk": Hostile(
        "with open('x', 'wb') as file:\n    file.write(bytes(80 << 20))\ntime.sleep(1000)", "disk-full", "64 MiB"
    ),
    "full disk": Hostile("raise OSError(28, 'No space left on device')", "disk-full", "line"),
    "huge output": Hostile("return torch.zeros(1).expand(1 << 40)", "memory-limit", "allocate"),
    "memory of nothing": Hostile(FORGED.format(size=1 << 46), "memory-limit", "outputs", quick=True),
    "more memory than addresses": Hostile(FORGED.format(size=(1 << 48) - 1), "memory-limit", "outputs"),
    "shape without end": Hostile(SHAPE, "forged", "shape", quick=True),
    "no compiler": Hostile("subprocess.run(['/nonexistent/gcc'])", "no-compiler", "line"),
}
BUILDS = {
    "raises": Hostile("1 / 0", "build-error", "line 1: ZeroDivisionError"),
    "syntax": Hostile("def candidate(", "build-error", "SyntaxError"),
    "nothing": Hostile("x = 1", "build-error", "candidate"),
    "no function": Hostile("candidate = 3", "build-error", "not a function"),
    "missing import": Hostile("import qrprof_nonesuch", "build-error", "qrprof_nonesuch"),
    "hang": Hostile("while True: pass", "hang", "in time"),
    "exit": Hostile("import os; os._exit(0)", "crash", "exit code 0"),
}
IMPORTS = "import ctypes, mmap, os, signal, subprocess, threading, time\nimport torch\n"
DAEMON = """
subprocess.Popen(["sleep", "1000"], env={}, start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 200)
        while True:
            time.sleep(1)
    os._exit(0)
"""


def written(folder: Path, body: str) -> Path:
    source = folder / "candidate.py"
    source.write_text(f"{IMPORTS}\ndef candidate(x):\n{textwrap.indent(body, '    ')}\n    return x.clone()\n")
    return source


def params(cases: Mapping[str, Hostile]) -> list[Any]:
    return [pytest.param(one, id=name, marks=() if one.quick else pytest.mark.slow) for name, one in cases.items()]


def left_of(worker: ProcessWorker) -> list[psutil.Process]:
    """Processes that still run of those started in the worker's environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == str(worker.process.scratch):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return [process for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("case", params(CALLS))
def test_a_hostile_call_ends_its_worker_and_nothing_is_left(case: Hostile, tmp_path: Path) -> None:
    limits = IMPATIENT if case.reason == "hang" else LIMITS
    with started(written(tmp_path, case.body), "cpu", limits) as worker:
        worker.build()
        with pytest.raises(Ended) as ended:
            worker.call([(torch.ones(3),)])
        assert (ended.value.reason, case.words in ended.value.detail) == (case.reason, True), ended.value
        assert left_of(worker) == []
        with pytest.raises(Ended) as again:
            worker.call([(torch.ones(3),)])
        assert again.value.reason == case.reason
    assert not worker.process.scratch.exists()


@pytest.mark.slow
def test_the_others_and_the_next_are_served(tmp_path: Path) -> None:
    def one() -> list[float]:
        return honest.call([(torch.ones(3),)]).calls[0].outputs[0].tolist()

    (tmp_path / "honest").mkdir()
    good, bad = written(tmp_path / "honest", ""), written(tmp_path, DAEMON + "os.kill(os.getpid(), 9)")
    before = len(psutil.Process().children(recursive=True))
    with started(good, "cpu", LIMITS) as honest:
        honest.build()
        with started(bad, "cpu", LIMITS) as hostile:
            hostile.build()
            with pytest.raises(Ended, match="SIGKILL"):
                hostile.call([(torch.ones(3),)])
            assert one() == [1, 1, 1]
        assert one() == [1, 1, 1]
    with started(good, "cpu", LIMITS) as honest:
        honest.build()
        assert one() == [1, 1, 1]
    assert len(psutil.Process().children(recursive=True)) == before


@pytest.mark.slow
@pytest.mark.parametrize("case", params(BUILDS))
def test_a_candidate_that_cannot_be_built(case: Hostile, tmp_path: Path) -> None:
    source = tmp_path / "candidate.py"
    source.write_text(case.body + "\n")
    with started(source, "cpu", IMPATIENT) as worker, pytest.raises(Ended) as ended:
        worker.build()
    assert (ended.value.reason, case.words in ended.value.detail) == (case.reason, True), ended.value


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["bubblewrap", "namespaces", "none"])
def test_a_daemon_is_found_and_ended_in_every_layer(layer: Layer, tmp_path: Path) -> None:
    if not sandbox.works(layer):
        pytest.skip(f"{layer} does not work on this machine")
    with started(written(tmp_path, DAEMON), "cpu", LIMITS, layer) as worker:
        assert worker.layer == layer
        worker.build()
        reply = worker.call([(torch.ones(3),)], watch=True)
        assert any(sign.detector == "threads" and "still run" in sign.detail for sign in reply.signs)
        left = worker.process.root.children(recursive=True)
        assert len(left) >= 3
    assert not any(process.is_running() for process in left)


@pytest.mark.slow
def test_folders_that_are_hard_to_remove_are_removed(tmp_path: Path) -> None:
    deeper = "    os.mkdir('d')\n    os.chdir('d')\n"
    body = f"here = os.getcwd()\nfor _ in range(1500):\n{deeper}os.chdir(here)\nos.chmod('d', 0)\ntime.sleep(0.3)"
    with started(written(tmp_path, body), "cpu", LIMITS) as worker:
        worker.build()
        assert worker.call([(torch.ones(3),)]).calls[0].error is None
        folder = worker.process.scratch
        assert (folder / "d").exists()
    assert not folder.exists()


@pytest.mark.slow
def test_without_a_layer_a_candidate_that_kills_its_keeper_leaves_nothing(tmp_path: Path) -> None:
    body = "subprocess.Popen(['sleep', '1000'])\nos.kill(os.getppid(), 9)\ntime.sleep(1000)"
    with started(written(tmp_path, body), "cpu", LIMITS, "none") as worker:
        worker.build()
        with pytest.raises(Ended, match="crash"):
            worker.call([(torch.ones(3),)])
        assert left_of(worker) == []


@pytest.mark.slow
def test_a_compiler_that_is_missing_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    body = "from triton.runtime.build import _build\n_build('x', 'x.c', '.', [], [], [], [])"
    with started(written(tmp_path, body), "cpu", Limits(), "none") as worker:  # it needs no PATH itself
        worker.build()
        with pytest.raises(Ended) as ended:
            worker.call([(torch.ones(3),)])
    assert ended.value.reason == "no-compiler", ended.value


@pytest.mark.slow
def test_what_a_build_does_besides_is_told(tmp_path: Path) -> None:
    source = tmp_path / "candidate.py"
    source.write_text(
        "import subprocess, time, torch\ntorch.manual_seed(3)\ntime.time = time.monotonic\n"
        "def candidate(x):\n    return x\n"
    )
    with started(source, "cpu", Limits()) as worker:
        signs = {sign.detector: sign.detail for sign in worker.build().signs}
    assert signs["import"] == "it imports subprocess, which candidates may not"
    assert "random" in signs["global-state"]
    assert signs["patched"] == "it replaced time.time"
