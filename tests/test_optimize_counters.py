"""Registers and counters of a starting file's kernels, with the commands' answers given by the test."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from gate_tasks import MM

from qrprof.planner.gate.qr_task import built_in
from qrprof.planner.gate.records import Task
from qrprof.planner.gate.task_store import TASK
from qrprof.planner.optimize import brief, counters
from qrprof.planner.optimize.counters import METRICS, TIME, kernels, sentences

ON_GPU = replace(MM, device="cuda")
LOOKED = '{"kernel": "leaf", "registers": 128, "spills": 0}\nsomething else\n'
UNKNOWN = "hardware counters are not known: "


def page(*launches: tuple[str, float, float, float, int]) -> str:
    """ncu's raw page: kernel, compute, memory and warps in per cent, ns."""
    rows: list[Sequence[object]] = [["ID", "Kernel Name", *METRICS, TIME], ["", "", "%", "%", "%", "ns"]]
    rows += [(number, *launch) for number, launch in enumerate(launches)]
    lines = [",".join(f'"{cell}"' for cell in row) for row in rows]
    return "\n".join(["==PROF== Connected to process 1", *lines])


def test_a_task_of_a_cpu_starts_no_process() -> None:
    assert sentences(MM, "", lambda command, env: pytest.fail("started")) == ()


def test_registers_and_counters_are_told_and_no_key_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    seen: list[Mapping[str, str]] = []

    def run(command: Sequence[str], env: Mapping[str, str]) -> str:
        seen.append(env)
        text = (Path(command[-1]) / "candidate.py").read_text()
        assert text == "the file"
        launches = ("leaf(float)", 40.0, 20.0, 50.0, 3000), ("leaf(float)", 80.0, 20.0, 50.0, 1000)
        return page(*launches, ("copy", 1.0, 90.0, 50.0, 9000)) if command[0] == "/bin/ncu" else LOOKED

    assert sentences(ON_GPU, "the file", run) == (
        "kernel leaf: 128 registers a thread, 0 spilled",
        "kernel copy: 9.00 us in 1 launches; 1% compute, 90% memory, 50% warps active",
        "kernel leaf: 4.00 us in 2 launches; 50% compute, 20% memory, 50% warps active",
    )
    assert len(seen) == 2
    assert not any("secret" in value for env in seen for value in env.values())


@pytest.mark.parametrize(
    ("installed", "printed", "why"),
    [
        (False, "", "ncu is not installed"),
        (True, "==ERROR== ERR_NVGPUCTRPERM - no permission", "the driver does not permit ncu"),
        (True, "", "ncu failed on this file"),
        (True, '"ID","Kernel Name"', "ncu failed on this file"),
    ],
)
def test_what_cannot_be_known_is_one_sentence(
    installed: bool, printed: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name if installed else None)
    assert sentences(ON_GPU, "", lambda command, env: printed) == (UNKNOWN + why,)


def test_what_triton_compiled_is_found_in_a_modules_names() -> None:
    one = SimpleNamespace(metadata=SimpleNamespace(name="leaf"), n_regs=255, n_spills=124)
    jitted = SimpleNamespace(device_caches={0: ({"key": one}, {}, None, None, None)})
    assert list(kernels([jitted, 3, None])) == [("leaf", 255, 124)]


def test_the_process_calls_the_candidate_on_the_heaviest_case(tmp_path: Path) -> None:
    (tmp_path / "task.json").write_bytes(TASK.dump_json(MM))
    (tmp_path / "candidate.py").write_text("def candidate(a, b):\n    print((a @ b).shape)\n")
    command = [sys.executable, "-m", "qrprof.planner.optimize.counters", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "torch.Size([12, 8])\n"


def test_a_file_of_ones_own_is_never_run_outside_the_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[str]()

    def sentences(task: Task, source: str) -> tuple[str, ...]:
        told.append(source)
        return ()

    monkeypatch.setattr(brief, "device_here", lambda task: "a GPU")
    monkeypatch.setattr(brief, "peaks_here", lambda task, device: None)
    monkeypatch.setattr(counters, "sentences", sentences)
    mine = tmp_path / "mine.py"
    mine.write_text("def candidate(self):\n    raise SystemExit\n")
    task = built_in("small", "geqrf", "cuda")
    assert brief.brief(tmp_path, task, mine).source == mine.read_text()
    assert told == []
    assert brief.brief(tmp_path, task, None).source == told[0]
