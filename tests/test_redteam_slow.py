"""The gate's judgement of speed on real processes: what is no faster is not promoted, and what is, is."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns

import pytest

from qrprof.planner.gate import timing
from qrprof.planner.gate.aten_task import stock_source
from qrprof.planner.gate.draw import fresh_seed
from qrprof.planner.gate.gate import run_gate
from qrprof.planner.gate.replies import Built, Workers
from qrprof.planner.gate.selftest import FOLDER, opened, task
from qrprof.planner.gate.trial import Trial

TRIALS = 100
PLANTED = 3  # times as much work as is needed, in the parent
WINS = 3  # trials

pytestmark = [pytest.mark.slow, pytest.mark.alone]


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """Of one thread each: several in each of five processes wait for one another where cores are few or busy, and then
    the gate says rightly that the machine is too noisy to tell.
    """
    with pytest.MonkeyPatch.context() as patch, opened("cpu") as found:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield found


@pytest.fixture
def stock(tmp_path: Path) -> Callable[[str], Path]:
    def written(op: str) -> Path:
        path = tmp_path / "stock.py"
        path.write_text(stock_source(op))
        return path

    return written


def test_a_no_op_is_never_promoted(
    workers: Workers, stock: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stock op against itself: none of 100 means fewer than 3 % with 95 % confidence (0.97^100 = 0.048)."""
    monkeypatch.setattr(timing, "BUDGET_NS", 0)  # the fewest rounds, where luck has the best chance
    judged = task("softmax", "cpu")
    source = stock(judged.op)
    with workers(source) as own, workers(source) as twin, workers(source) as other:
        rng = random.Random(0)
        trial = Trial(judged, source, workers, own, other, Built(0.0), fresh_seed, rng)
        against = timing.Against(twin, None, None, 1, perf_counter_ns)
        found = [timing.timing(trial, against) for _ in range(TRIALS)]
    promoted = [one for one in found if not one.checked.findings]
    with capsys.disabled():
        print(f"\nno-op promoted: {len(promoted)} of {TRIALS}: below 3 % at 95 %")
    assert not promoted, [(one.speedup, one.needed) for one in promoted]
    assert all(finding.detector in {"noise", "slower"} for one in found for finding in one.checked.findings)


def test_a_parent_with_planted_work_is_found_and_beaten(workers: Workers, tmp_path: Path) -> None:
    honest = FOLDER / "honest_softmax.py"
    text = honest.read_text().replace("def candidate(", "def once(")
    parent = tmp_path / "parent.py"
    parent.write_text(
        f"{text}\n\ndef candidate(*args):\n    for _ in range({PLANTED}):\n        out = once(*args)\n    return out\n"
    )
    for _ in range(WINS):
        verdict = run_gate(task("long_softmax", "cpu"), honest, parent, workers=workers)
        assert verdict.outcome == "PASS", verdict.findings
        assert verdict.over_parent is not None
        assert verdict.needed is not None
        assert verdict.over_parent.low > verdict.needed
