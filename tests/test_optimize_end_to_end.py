"""From a traced program to a suggestion: with the gate's clock scripted, and for real."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import pytest
from conftest import Workshop
from gate_scripted import Clock, Script, stock_of, workers

from qrprof.planner.gate.gate import Lane, run_gate
from qrprof.planner.gate.preview import preview
from qrprof.planner.optimize.brief import journal_of
from qrprof.planner.optimize.records import Evaluation, Job
from qrprof.planner.optimize.tunables import tunables
from qrprof.tui.cli import run
from qrprof.tui.ranking import load_ranking

ROUTER = """\
import torch
torch.manual_seed(0)
model = torch.nn.Linear(16, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(60):
    optimizer.zero_grad()
    model(torch.randn({rows}, 16)).softmax(-1).square().mean().backward()
    optimizer.step()
"""
SLOW = '''\
"""A router's softmax over whole tensors, PASSES times over: a planted slowdown."""

TUNABLES = {"PASSES": (6, 3, 1), "CLEAR": (True, False)}
PASSES = 6
CLEAR = True


def candidate(x, dim, half_to_float):
    for _ in range(PASSES):
        x = x.contiguous()
        weights = (x - x.amax(dim, keepdim=True)).exp_()
        result = weights.div_(weights.sum(dim, keepdim=True))
    return result
'''


class Scripted:
    """A pool whose gate is the real one, on workers that pass their time by a script: PASSES ms a call, stock 2 ms."""

    slots = 1

    def __init__(self, slots: int = 1, **options: Any) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def cancel(self) -> None: ...

    def evaluate(self, jobs: Sequence[Job]) -> list[Evaluation]:
        return [self.evaluated(job) for job in jobs]

    def evaluated(self, job: Job) -> Evaluation:
        clock, seeds = Clock(), iter(range(1, 10**9))
        scripts = {"stock.py": Script(lambda: stock_of(job.task), cost_ns=2e6), "candidate.py": script_of(job.source)}
        with TemporaryDirectory() as name:
            source, parent = Path(name, "candidate.py"), Path(name, "parent.py")
            source.write_text(job.source)
            if job.parent is not None:
                parent.write_text(job.parent)
                scripts["parent.py"] = script_of(job.parent)
            given: Any = (job.task, source, parent if job.parent is not None else None)
            common: Any = {"workers": workers(scripts, clock), "clock": clock, "seeds": lambda: next(seeds)}
            if job.rung == "preview":
                return Evaluation(job, 1.0, "here", "cpu", preview=preview(*given, rounds=job.rounds, **common))
            lane = Lane(job.tries, lambda: job.query)
            until: Any = "holdout" if job.rung == "sealed" else "timing"
            return Evaluation(job, 1.0, "here", "cpu", verdict=run_gate(*given, lane=lane, until=until, **common))


def script_of(source: str) -> Script:
    settings = {one.name: one.value for one in tunables(source)}

    def make() -> Callable[..., Any]:
        names: dict[str, Any] = {}
        exec(source, names)  # noqa: S102 - text of SLOW
        found: Callable[..., Any] = names["candidate"]
        return found

    return Script(make, cost_ns=1e6 * float(str(settings["PASSES"])))


@pytest.fixture
def traced(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Trace a program, and go where it was traced."""

    def of(text: str) -> Path:
        workshop.write("train.py", text)
        workshop.write("slow.py", SLOW)
        ended = workshop.trace("train.py")
        assert ended.code == 0, ended.err
        monkeypatch.chdir(workshop.folder)
        monkeypatch.setenv("QRPROF_CACHE", str(workshop.folder / "cache"))
        for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
            monkeypatch.delenv(name, raising=False)
        return workshop.folder

    return of


def steadied(folder: Path) -> None:
    """Every unprofiled step of the run takes as long as a recorded one: how busy this machine is must not matter."""
    (path,) = folder.glob(".qrprof/runs/*/run.json")
    record = json.loads(path.read_text())
    recorded = round(load_ranking(None).partition.recorded_ns)
    for block in record["unprofiled"]:
        block["durations_ns"] = [recorded] * len(block["durations_ns"])
    path.write_text(json.dumps(record))


def events_of(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_from_a_trace_to_a_suggestion_on_a_scripted_clock(
    traced: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = traced(ROUTER.format(rows=2048))
    steadied(folder)
    monkeypatch.setattr("qrprof.planner.optimize.pool.LocalPool", Scripted)
    capsys.readouterr()
    assert run(["optimize", "--target", "aten::_softmax", "--start", "slow.py", "--json"]) == 0
    found = events_of(capsys.readouterr().out)
    last = found[-1]
    assert last["kind"] == "suggestion"
    assert last["speedup"]["low"] < 2.0 < last["speedup"]["high"]
    text = (folder / last["file"]).read_text()
    assert "PASSES = 1\n" in text
    (one,) = journal_of(folder).optimizations()
    assert one.ended is not None
    assert one.ended["verdict"] == last["verdict"]
    capsys.readouterr()
    assert run(["verdict", last["verdict"]]) == 0
    assert capsys.readouterr().out.startswith("PASS: 2.0")
    assert run(["predictions", "--json"]) == 0
    (made,) = json.loads(capsys.readouterr().out)["predictions"]
    assert made["source"] == "optimize"
    assert made["predicted_ms"]["mid"] < made["step_ms"]
    assert run(["history", one.id]) == 0
    assert "PASSES 6 -> " in capsys.readouterr().out
