"""The whole way of a swap on the CPU: traced, judged, accepted, run, taken back, and stock again bit for bit."""

import importlib.metadata
import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from gate_cases import PASSED

from qrprof.kernels.qr import cpu
from qrprof.planner import predictions
from qrprof.planner.gate.records import Interval, Task, Verdict
from qrprof.planner.ledger import opened
from qrprof.planner.swaps import store
from qrprof.planner.swaps.proposals import WRAPPER
from qrprof.tui.cli import run

SCRIPT = f"""\
import hashlib, sys
sys.path.insert(0, {str(Path(__file__).parents[1] / "examples")!r})
import torch
import block_soap, charlm

torch.manual_seed(0)
cpu = torch.device("cpu")
model = charlm.CharLM()
optimizer = block_soap.BlockSOAP(model.parameters())
charlm.train(model, optimizer, charlm.batches(size=4, context=16, device=cpu), steps=30, device=cpu)
whole = hashlib.sha256()
for p in model.parameters():
    whole.update(p.detach().numpy().tobytes())
print(whole.hexdigest())
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not cpu.available(), reason="torch is not built with MKL and OpenMP"),
]


@pytest.fixture
def traced(workshop: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in workshop.environment(QRPROF_CONFIG=str(workshop.folder / "config")).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(workshop.folder)
    workshop.write("soap.py", SCRIPT)
    assert workshop.trace("soap.py").code == 0
    return workshop


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Task, str]]:
    """Stands for the gate, whose times on a busy machine are no known answer: a pass, 1.8 times the speed of stock."""
    seen: list[tuple[Task, str]] = []

    def passes(task: Task, source: Path, parent: Path | None, **others: Any) -> Verdict:
        seen.append((task, source.read_text()))
        sha = sha256(source.read_bytes()).hexdigest()
        return replace(PASSED, id="judged", task=task.id, candidate=sha, speedup=Interval(1.7, 1.8, 1.9))

    monkeypatch.setattr("qrprof.planner.gate.gate.run_gate", passes)
    monkeypatch.setattr("qrprof.planner.gate.sandbox.available_layer", lambda: "bubblewrap")
    return seen


def digest(workshop: Any, *command: str) -> tuple[str, str]:
    """The last line that the program prints, and what is said on stderr."""
    ended = workshop.python(*command)
    assert ended.code == 0, ended.err
    return ended.out.splitlines()[-1], ended.err


def test_the_included_qr_from_the_trace_to_the_undo(
    traced: Any, judged: list[tuple[Task, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    stock, _ = digest(traced, "soap.py")
    assert run(["swaps", "list", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["swaps"]
    assert (found["name"], found["state"], found["entry"]["device"]) == ("qr", "proposed", "cpu")

    assert run(["swaps", "accept", "qr", "--yes"]) == 0
    ((task, source),) = judged
    assert (task.op, source, task.origin) == ("linalg_qr", WRAPPER, found["run_id"])
    assert [case.tensors[0].shape[-2:] for case in task.development] == [(64, 64)]
    talk = capsys.readouterr().err
    assert "qrprof verify soap.py" in talk
    assert "next: " in talk or "nothing else of the ranking is worth it" in talk  # which depends on the noise
    with opened(traced.folder) as connection:
        kept = store.find(connection, "qr")
        assert kept.swap.prediction is not None
        made = predictions.find(connection, kept.swap.prediction)
    assert (kept.state, kept.swap.verdict, made.scenario) == ("accepted", "judged", "linalg_qr=swap qr")
    assert made.high_ns < made.base_ns
    assert kept.entry is not None
    assert kept.entry.torch == importlib.metadata.version("torch")

    _, said = digest(traced, "-m", "qrprof", "run", "soap.py")
    assert "swap qr served 30 of 30 calls" in said

    assert run(["swaps", "undo", "qr"]) == 0
    again, said = digest(traced, "-m", "qrprof", "run", "soap.py")
    assert again == stock
    assert "runs on stock kernels" in said


def test_the_gate_itself_judges_the_included_qr(traced: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """What it finds of its speed depends on the machine; of its answers, threads and imports it finds nothing."""
    run(["swaps", "accept", "qr", "--yes"])
    capsys.readouterr()
    assert run(["verdict", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["verdicts"]
    assert run(["verdict", one["id"], "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    against = {found["detector"] for found in verdict["findings"] if found["outcome"] != "PASS"}
    assert against <= {"noise", "slower", "fallback", "relabelled"}
    assert "timing" in {cost["stage"] for cost in verdict["costs"]}
