"""The short look at a candidate: what it drops, how it ranks, and what it shares."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from gate_scripted import GEQRF, SOFTMAX, Clock, Script, fast, imprecise, softmax, stock_of, workers
from torch import Tensor

from qrprof.planner.gate.aten_task import stock_source
from qrprof.planner.gate.limits import Limits
from qrprof.planner.gate.pool import Pool
from qrprof.planner.gate.preview import preview
from qrprof.planner.gate.records import Preview, Task
from qrprof.planner.gate.replies import Ended, Sign, Worker
from qrprof.planner.gate.worker import ProcessWorker, started


def look(
    tmp_path: Path, script: Script, *, parent: Script | None = None, task: Task = SOFTMAX, **given: Any
) -> Preview:
    clock = Clock()
    files = {"stock.py": Script(lambda: stock_of(task)), "candidate.py": script, "parent.py": parent or script}
    for name in files:
        (tmp_path / name).write_text("def candidate(*args): ...\n", encoding="utf-8")
    seeds = iter(range(1, 10**9))
    return preview(
        task,
        tmp_path / "candidate.py",
        tmp_path / "parent.py" if parent else None,
        workers=workers(files, clock),
        clock=clock,
        seeds=lambda: next(seeds),
        **given,
    )


def test_a_right_candidate_is_ranked_by_its_speed_over_the_stock_op(tmp_path: Path) -> None:
    found = look(tmp_path, fast())
    assert found.outcome == "PASS"
    assert found.over is not None
    assert found.over.mid == pytest.approx(2.5, rel=0.05)
    assert found.over.low <= found.over.mid <= found.over.high
    assert found.noise is not None
    assert {name: round(over.mid, 1) for name, over in found.cases.items()} == {"16x8": 2.5, "8x12": 2.5}
    assert "the speed of the stock op" in found.findings[0]


def test_a_parent_is_what_it_is_ranked_over(tmp_path: Path) -> None:
    found = look(tmp_path, Script(lambda: softmax, cost_ns=5e6), parent=Script(lambda: softmax, cost_ns=15e6))
    assert found.over is not None
    assert found.over.mid == pytest.approx(3, rel=0.05)
    assert "the speed of the parent" in found.findings[0]


def test_slow_is_not_wrong(tmp_path: Path) -> None:
    found = look(tmp_path, Script(lambda: softmax, cost_ns=20e6))
    assert found.outcome == "PASS"
    assert found.over is not None
    assert found.over.mid == pytest.approx(0.25, rel=0.05)


def test_more_rounds_take_more_requests(tmp_path: Path) -> None:
    def requests(rounds: int) -> int:
        asked = []

        def candidate(x: Tensor, dim: int, half: bool) -> Tensor:
            asked.append(x)
            return softmax(x, dim)

        look(tmp_path, Script(lambda: candidate, cost_ns=20e6), rounds=rounds)
        return len(asked)

    assert requests(9) > requests(3) + 6


@pytest.mark.parametrize(
    ("script", "outcome", "sentence"),
    [
        (fast(imprecise), "FAIL", ": "),
        (fast(lambda x, dim, half: softmax(x, dim).t().contiguous().t()), "FAIL", "strides"),
        (fast(ends={0: Ended("build-error", "line 3: no")}), "FAIL", "line 3: no"),
        (fast(ends={0: Ended("no-compiler", "no gcc")}), "INFRA", "no gcc"),
        (fast(ends={4: Ended("hang", "no answer in time")}), "FAIL", "no answer in time"),
        (fast(built=(Sign("import", "it imports socket"),)), "FAIL", "it imports socket"),
    ],
    ids=["wrong", "strides", "build", "compiler", "hang", "import"],
)
def test_what_is_wrong_is_dropped_with_a_sentence(tmp_path: Path, script: Script, outcome: str, sentence: str) -> None:
    found = look(tmp_path, script)
    assert (found.outcome, found.over) == (outcome, None)
    assert sentence in found.findings[0]


def test_an_answer_wrong_only_where_it_is_timed_is_seen(tmp_path: Path) -> None:
    calls = []

    def candidate(x: Tensor, dim: int, half: bool) -> Tensor:
        calls.append(x)
        return imprecise(x, dim, half) if len(calls) > 30 else softmax(x, dim)

    assert look(tmp_path, fast(candidate), rounds=9).outcome == "FAIL"


def test_a_broken_stock_worker_is_no_fault_of_the_candidates(tmp_path: Path) -> None:
    clock = Clock()
    files = {"stock.py": Script(lambda: stock_of(SOFTMAX), ends={2: Ended("crash", "gone")}), "candidate.py": fast()}
    (tmp_path / "candidate.py").write_text("", encoding="utf-8")
    found = preview(SOFTMAX, tmp_path / "candidate.py", workers=workers(files, clock), clock=clock)
    assert (found.outcome, found.findings) == ("INFRA", ("a worker of ours ended: gone",))


def test_the_turn_is_taken_once_the_candidate_is_built_and_given_back(tmp_path: Path) -> None:
    seen: list[str] = []

    @contextmanager
    def turn() -> Iterator[None]:
        seen.append("taken")
        yield
        seen.append("given back")

    def make() -> Any:
        seen.append("built")
        return softmax

    look(tmp_path, Script(make, cost_ns=20e6), turn=turn())
    assert seen == ["built", "taken", "given back"]


CANDIDATE = """
import torch

def candidate(self):
    H, tau = torch.ops.aten.geqrf(self)
    return H, tau
"""


@pytest.mark.slow
def test_real_processes_of_the_stock_op_live_on(tmp_path: Path) -> None:
    starts: list[str] = []

    @contextmanager
    def counted(source: Path) -> Iterator[Worker]:
        starts.append(source.name)
        with started(source, "cpu", Limits(), "none") as worker:
            yield worker

    source = tmp_path / "candidate.py"
    source.write_text(CANDIDATE, encoding="utf-8")
    with ExitStack() as stack:
        pool = Pool(counted, frozenset({stock_source("geqrf")}), stack)
        looks = [preview(GEQRF, source, workers=pool) for _ in range(2)]
    assert sorted(starts) == ["candidate.py", "candidate.py", "stock.py", "stock.py"]
    assert all(found.outcome in ("PASS", "UNKNOWN") for found in looks)  # calls may drown in the trip


def test_a_worker_that_ended_while_it_was_idle_is_not_lent_again(tmp_path: Path) -> None:
    made: list[ProcessWorker] = []

    @contextmanager
    def workers(source: Path) -> Iterator[Worker]:
        with started(source, "cpu", Limits(), "none") as worker:
            made.append(worker)
            yield worker

    source = tmp_path / "stock.py"
    source.write_text("def candidate(a):\n    return a + 1\n", encoding="utf-8")
    with ExitStack() as stack:
        pool = Pool(workers, frozenset({source.read_text()}), stack)
        for _ in range(2):
            with pool(source) as lent:
                lent.build()
        for process in made[0].process.root.children(recursive=True):
            process.kill()
        made[0].process.process.wait()
        with pool(source) as lent:
            assert lent.call([(torch.ones(2),)]).calls[0].outputs[0].tolist() == [2, 2]
    assert len(made) == 2
