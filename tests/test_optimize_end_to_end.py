"""From a traced program to a suggestion: with the gate's clock scripted, and for real."""

import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import pytest
from conftest import Workshop
from gate_scripted import SOFTMAX, Clock, Script, case, stock_of, workers
from loopback import KEY, MODEL, loopback, proposes, says, status
from optimize_clusters import started

from qrprof.planner.gate.gate import Lane, run_gate
from qrprof.planner.gate.preview import preview
from qrprof.planner.gate.task_store import keep
from qrprof.planner.optimize.journal import journal_of
from qrprof.planner.optimize.records import Evaluation, Job
from qrprof.planner.optimize.tunables import tunables
from qrprof.tui.cli import run
from qrprof.tui.ranking import load_ranking

ROUTER = """\
import torch
torch.manual_seed(0)
model = torch.nn.Linear(16, 5)
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
        monkeypatch.setenv("OMP_NUM_THREADS", "1")  # of each candidate: idle ones of several spin beside what is timed
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
    monkeypatch.setenv("QRPROF_CONFIG", str(folder / "config"))
    assert run(["swaps", "accept", last["swap"], "--yes"]) == 0
    assert "PASSES = 1\n" in capsys.readouterr().out
    program = subprocess.run(
        [sys.executable, "-m", "qrprof", "run", "train.py"], check=False, capture_output=True, text=True
    )
    assert program.returncode == 0, program.stderr
    assert re.search(rf"swap {last['swap']} served [1-9]\d* of \d+ calls", program.stderr), program.stderr


# --- for real


@pytest.mark.alone
@pytest.mark.slow
def test_a_planted_slowdown_is_found_and_undone(
    traced: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = traced(ROUTER.format(rows=65536))
    steadied(folder)
    (folder / "slow.py").write_text(SLOW.replace("6", "3"))
    capsys.readouterr()
    command = ["optimize", "--target", "aten::_softmax", "--start", "slow.py", "--budget", "10min,20evals"]
    assert run([*command, "--json"]) == 0
    found = events_of(capsys.readouterr().out)
    assert found[-1]["kind"] == "suggestion", found[-1]
    assert "PASSES = 1\n" in (folder / found[-1]["file"]).read_text()
    assert run(["verdict", found[-1]["verdict"], "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    assert verdict["outcome"] == "PASS"
    assert verdict["over_parent"]["low"] > 1.5
    assert verdict["speedup"]["low"] > verdict["needed"]


@pytest.mark.alone
@pytest.mark.slow
def test_a_program_with_nothing_to_gain_is_told_so_with_numbers(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[1] / "examples" / "adamw_charlm.py"
    assert workshop.python("-m", "qrprof", "doctor", "--measure").code == 0
    assert workshop.trace("--stop", str(example)).code == 0
    monkeypatch.chdir(workshop.folder)
    monkeypatch.setenv("QRPROF_CACHE", str(workshop.folder / "cache"))
    capsys.readouterr()
    assert run(["optimize"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("don't bother: nothing is worth it; ")
    # What a busy machine did to the recording may withhold all shares, and with them the gains.
    assert re.search(r"\d ms of (a step of )?\d+|not comparable with a step", out)


CHEAT = """\
ANSWERS = {}


def candidate(x, dim, half_to_float):
    return ANSWERS.setdefault(x.shape, x.softmax(dim))
"""
# The environment is where a key would be: a candidate that sees one fails.
BETTER = """\
import torch

assert not any("sk-" in value for value in torch.os.environ.values())


""" + SLOW.partition("CLEAR = True\n\n\n")[2].replace("range(PASSES)", "range(1)")


@pytest.mark.alone
@pytest.mark.slow
def test_a_model_that_cheats_then_is_slow_then_fails_twice_and_then_is_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "config"))
    monkeypatch.setattr("time.sleep", lambda seconds, sleep=time.sleep: sleep(min(seconds, 0.2)))
    keep(tmp_path, replace(SOFTMAX, development=(case(65536, 5, 1.0),)))
    slow = BETTER.replace("range(1)", "range(40)")
    replies = [
        proposes(CHEAT, "answers are kept"),
        proposes(slow, "forty passes"),
        status(500),
        says('{"changed": "cut off'),
        proposes(BETTER, "whole tensors"),
    ]
    with loopback(*replies) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        command = ["optimize", "--task", "softmax", "--proposer", "llm", "--model", MODEL, "--yes", "--json"]
        assert run([*command, "--allow-unsandboxed", "--budget", "1Mtokens,12evals,10min"]) == 0
        prompts = [asked.prompt for asked in server.asked]
    out, err = capfd.readouterr()
    found = events_of(out)
    judged = {one["number"]: one for one in found if one["kind"] == "judged" and one["rung"] == "preview"}
    assert judged[1]["outcome"] == "FAIL"
    assert judged[2]["over"]["high"] < 1
    assert judged[3]["over"]["low"] > 1
    assert "malformed" in {one["what"] for one in found if one["kind"] == "trouble"}
    assert found[-1]["kind"] == "suggestion", found[-1]
    assert (tmp_path / found[-1]["file"]).read_text() == BETTER
    assert "answers are kept -> FAIL" in prompts[-1]
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(KEY.encode() in one for one in (*kept, out.encode(), err.encode(), "".join(prompts).encode()))


@pytest.mark.alone
@pytest.mark.slow
def test_candidates_are_evaluated_on_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    keep(tmp_path, replace(SOFTMAX, development=(case(16384, 5, 1.0),)))
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "dask").mkdir()
    with started(tmp_path / "dask", real=True) as cluster:
        cluster.pool(workers=1).close()
        command = ["optimize", "--task", "softmax", "--start", "slow.py", "--budget", "3evals", "--json"]
        capsys.readouterr()
        assert run([*command, "--cluster", cluster.address]) == 0
    judged = [one for one in events_of(capsys.readouterr().out) if one["kind"] == "judged"]
    assert {one["device"] for one in judged} == {"cpu"}
    assert all(one["host"].startswith(f"{platform.node()} tcp://127.0.0.1:") for one in judged)
    assert {one["outcome"] for one in judged} <= {"PASS", "FAIL", "UNKNOWN"}
    assert run([*command[:-1], "--cluster", "tcp://127.0.0.1:1"]) == 1
    assert "no dask scheduler at tcp://127.0.0.1:1" in capsys.readouterr().err
