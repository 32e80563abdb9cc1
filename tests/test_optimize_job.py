"""What evaluates a job: what it asks of the gate, whose turn it is, what a candidate sees, and what is left running."""

import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
from gate_cases import PASSED
from optimize_jobs import GOOD, HANGS, WRONG, job

from qrprof.planner.gate.gate import Lane
from qrprof.planner.gate.records import Interval, Preview, Task, Verdict
from qrprof.planner.optimize import job as job_module
from qrprof.planner.optimize.child import UNSANDBOXED, started_in
from qrprof.planner.optimize.job import Place, Server, Turn, run
from qrprof.planner.optimize.pool import LocalPool
from qrprof.planner.optimize.records import Evaluation, Job, Rung
from qrprof.planner.optimize.slots import held, slot_of
from qrprof.planner.optimize.wire import answer_text, evaluation_in, job_in, job_text
from qrprof.profiler.errors import Exit, QrprofError

LOOKED = Preview("PASS", ("1.2x the speed",), Interval(1.1, 1.2, math.inf), 0.02)
KEYS = {"OPENAI_API_KEY": "sk-1", "ANTHROPIC_API_KEY": "sk-2", "HF_TOKEN": "hf-3", "AWS_SECRET_ACCESS_KEY": "aws-4"}
TELLS = "import os\nraise RuntimeError(' '.join(f'{k}={v}' for k, v in os.environ.items() if len(v) < 40))\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))


# --- as text


@pytest.mark.parametrize("verdict", [None, PASSED])
def test_a_job_and_its_evaluation_are_the_same_after_a_way_as_text(verdict: Verdict | None) -> None:
    asked = job(GOOD, "sealed", parent=WRONG, query=2)
    assert job_in(job_text(asked)) == asked
    found = Evaluation(asked, 1.5, "host", "cpu", None if verdict else LOOKED, verdict)
    assert evaluation_in(answer_text(lambda _: found, "")) == found


@pytest.mark.parametrize("plain", [True, 1, 1.0, math.inf, "1", None, (), (1, 2), (1.0, 2.0), (True, False), (1, 2.5)])
def test_plain_values_keep_their_types(plain: Any) -> None:
    asked = job(GOOD)
    case = replace(asked.task.development[0], plain=(plain,))
    (found,) = job_in(job_text(replace(asked, task=replace(asked.task, development=(case,))))).task.development
    assert repr(found.plain) == repr((plain,))


def test_an_error_crosses_with_its_exit_code() -> None:
    def refuse(text: str) -> Evaluation:
        raise QrprofError("no such device", Exit.NO_DEVICE)

    with pytest.raises(QrprofError, match="no such device") as raised:
        evaluation_in(answer_text(refuse, ""))
    assert raised.value.exit_code == Exit.NO_DEVICE


# --- what is asked of the gate


@dataclass
class Gate:
    """Stands for the gate: remembers what it is asked, and whether the device's slot was taken meanwhile."""

    slot: str
    asked: dict[str, Any] = field(default_factory=dict)
    taken: list[bool] = field(default_factory=list)

    def judge(self, task: Task, source: Path, parent: Path | None, workers: Any, lane: Lane, *, until: str) -> Verdict:
        self.asked = {"texts": [one and one.read_text() for one in (source, parent)], "lane": lane, "until": until}
        self.look()
        return PASSED

    def preview(self, task: Task, source: Path, parent: Path | None, *, turn: Any, **others: Any) -> Preview:
        self.asked = {"texts": [one and one.read_text() for one in (source, parent)]} | others
        self.look()
        with turn or nullcontext():
            self.look()
        return LOOKED

    def look(self) -> None:
        script = f"from qrprof.planner.optimize.slots import held\nwith held({self.slot!r}, lambda: exit(7)): pass"
        self.taken.append(subprocess.run([sys.executable, "-c", script], check=False).returncode == 7)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    found = Gate("slot")
    monkeypatch.setattr(job_module, "judge", found.judge)
    monkeypatch.setattr(job_module, "preview", found.preview)
    return found


def evaluated(asked: Job, tmp_path: Path) -> Evaluation:
    return run(
        asked, lambda source: pytest.fail("a process is started"), Place("a device", "slot", tmp_path / "waiting")
    )


@pytest.mark.parametrize(("rung", "until"), [("gate", "timing"), ("sealed", "holdout")])
def test_a_verdict_is_taken_as_far_as_its_rung(gate: Gate, tmp_path: Path, rung: Rung, until: str) -> None:
    asked = replace(job(GOOD, rung, parent=WRONG, query=2), tries=7)
    found = evaluated(asked, tmp_path)
    assert (found.verdict, found.preview, found.lost) == (PASSED, None, None)
    assert (found.job, found.host, found.device) == (asked, platform.node(), "a device")
    assert gate.asked["texts"] == [GOOD, WRONG]
    assert gate.asked["until"] == until
    assert (gate.asked["lane"].tries, gate.asked["lane"].query()) == (7, 2)
    assert gate.taken == [True]


def test_a_preview_has_its_rounds_and_tries(gate: Gate, tmp_path: Path) -> None:
    found = evaluated(replace(job(GOOD), tries=5, rounds=9), tmp_path)
    assert (found.preview, found.verdict) == (LOOKED, None)
    assert gate.asked["texts"] == [GOOD, None]
    assert (gate.asked["rounds"], gate.asked["tries"]) == (9, 5)


@pytest.mark.parametrize(("device", "taken"), [("cpu", [True, True]), ("cuda", [False, True])])
def test_candidates_start_and_compile_beside_a_measurement_on_a_gpu_but_not_on_a_cpu(
    gate: Gate, tmp_path: Path, device: Any, taken: list[bool]
) -> None:
    asked = job(GOOD)
    evaluated(replace(asked, task=replace(asked.task, device=device)), tmp_path)
    assert gate.taken == taken


def test_a_process_that_can_no_longer_wait_for_the_device_does_not_say_that_it_waits(tmp_path: Path) -> None:
    place = Place("a device", "slot", tmp_path / "waiting")
    with pytest.raises(OSError, match="no locks"), Turn(place).waiting():
        raise OSError("no locks")
    assert not place.waiting.exists()


def test_where_nothing_can_contain_a_candidate_none_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qrprof.planner.gate.sandbox.available_layer", lambda: "none")
    with pytest.raises(QrprofError, match="nothing here can contain a candidate") as raised:
        Server("cpu", str(tmp_path), [])
    assert raised.value.exit_code == Exit.REFUSED
    assert Server("cpu", str(tmp_path), [UNSANDBOXED]).place.device == "cpu"


def test_a_device_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(QrprofError, match="no device 'cuda' here") as raised:
        Server("cuda", str(tmp_path), [])
    assert raised.value.exit_code == Exit.NO_DEVICE


# --- for real


def running(pool: LocalPool) -> list[psutil.Process]:
    """All processes of its first slot: the child, the keepers, and what they keep."""
    child = pool.seats[0].child
    return [] if child is None else started_in(child.folder)


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_a_real_job_and_that_no_key_gets_further_than_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    with LocalPool() as pool:
        wrong, tells = pool.evaluate([job(WRONG, "gate"), job(TELLS)])
        child = pool.seats[0].child
        assert child is not None
        seen = psutil.Process(child.process.pid).environ()
    assert wrong.verdict is not None
    assert wrong.outcome == "FAIL"
    assert {"device", "torch", "load before", "load after"} <= set(wrong.verdict.environment)
    assert (wrong.host, wrong.device, wrong.lost) == (platform.node(), "cpu", None)
    assert wrong.seconds > 0
    assert tells.preview is not None
    (printed,) = tells.preview.findings
    assert "LC_ALL=C.UTF-8" in printed
    for text in (printed, json.dumps(seen)):
        assert not [word for pair in KEYS.items() for word in pair if word in text]


def test_a_cancelled_job_leaves_no_process() -> None:
    found: list[Evaluation] = []
    with LocalPool() as pool:
        thread = Thread(target=lambda: found.extend(pool.evaluate([job(HANGS)])))
        thread.start()
        until(lambda: len(running(pool)) >= 3)
        ours = running(pool)
        pool.cancel()
        thread.join()
        assert [one.lost for one in found] == ["it was cancelled"]
        assert not [one for one in ours if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def test_a_killed_optimizer_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    script = f"""
from qrprof.planner.optimize.pool import LocalPool
from qrprof.planner.optimize.wire import job_in
LocalPool().evaluate([job_in({job_text(job(HANGS))!r})])
"""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment) as optimizer:
        until(lambda: len(started_in(tmp_path)) >= 4)
        optimizer.kill()
    until(lambda: started_in(tmp_path) == [])
    until(lambda: list(tmp_path.glob("qrprof-*")) == [])


@pytest.mark.slow
def test_jobs_wait_while_another_program_has_the_device() -> None:
    said, found = list[str](), list[Evaluation]()
    with LocalPool(say=said.append) as pool:
        thread = Thread(target=lambda: found.extend(pool.evaluate([job(WRONG)])))
        with held(slot_of({}), nullcontext):
            thread.start()
            until(lambda: said)
            assert not found
        thread.join()
    assert [one.outcome for one in found] == ["FAIL"]
    assert said == ["another optimizer measures on cpu: this one waits its turn"]


@pytest.mark.slow
def test_workers_of_the_stock_op_live_on_and_those_of_the_parent_for_previews() -> None:
    slower = "def candidate(a, b):\n    return (a @ b).clone()\n"
    with LocalPool() as pool:
        pool.evaluate([job(GOOD, parent=slower)])
        first = running(pool)
        assert len(first) >= 1 + 2 * 3  # the child, and keepers with the stock op, the parent, and the parent's twin
        pool.evaluate([job(GOOD, parent=slower), job(WRONG, "gate", parent=slower), job(WRONG)])
        assert set(first) <= set(running(pool))
        pool.evaluate([job(WRONG, parent=f"{slower}\n")])
        (left,) = set(first) & set(running(pool))
        assert pool.seats[0].child is not None
        assert left.pid == pool.seats[0].child.process.pid


@pytest.mark.slow
def test_a_process_that_is_asked_nothing_makes_room(tmp_path: Path) -> None:
    script = "from qrprof.planner.optimize import job; job.IDLE_S = 0.1; job.main()"
    with subprocess.Popen([sys.executable, "-c", script, "cpu", str(tmp_path)], stdin=subprocess.PIPE) as process:
        assert process.wait(60) == 0
