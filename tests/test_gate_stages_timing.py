"""The timing stage against scripted workers."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gate_scripted import SOFTMAX, Script, fast, found, gate, imprecise, softmax, stock_of
from torch import Tensor

from qrprof.planner.gate import rounds, timing
from qrprof.planner.gate.gate import Lane
from qrprof.planner.gate.promote import decide


def test_an_answer_wrong_only_where_it_is_timed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def candidate(x: Tensor, dim: int, half: bool) -> Tensor:
        return imprecise(x, dim, half) if float(x[0, 0]) > 1.5 else softmax(x, dim)

    from qrprof.planner.gate.trial import Checked

    for stage in ("contract", "development", "adversarial", "replay"):
        monkeypatch.setattr(f"qrprof.planner.gate.gate.{stage}", lambda trial: Checked())
    verdict = gate(tmp_path, fast(candidate))
    assert {"wrong", "shape-dependent"} <= found(verdict)
    assert verdict.costs[-1].stage == "timing"


def test_a_candidate_that_changes_nothing_is_not_promoted(tmp_path: Path) -> None:
    verdict = gate(tmp_path, Script(lambda: stock_of(SOFTMAX)))
    assert verdict.outcome != "PASS"
    assert found(verdict) == {"noise", "fallback"}


@pytest.mark.parametrize("seed", range(5))
def test_a_candidate_as_fast_as_stock_is_not_promoted(tmp_path: Path, seed: int) -> None:
    stock = Script(lambda: stock_of(SOFTMAX), spread=0.2)
    verdict = gate(tmp_path, Script(lambda: softmax, spread=0.2), stock=stock, seed=seed)
    assert verdict.outcome != "PASS"
    assert found(verdict) == {"noise"}


def test_a_slower_candidate_is_called_slower(tmp_path: Path) -> None:
    verdict = gate(tmp_path, Script(lambda: softmax, cost_ns=7e6))
    assert (verdict.outcome, found(verdict)) == ("FAIL", {"slower"})


@pytest.mark.parametrize("seed", range(3))
def test_a_parent_three_times_as_slow_is_beaten(tmp_path: Path, seed: int) -> None:
    parent = Script(lambda: softmax, cost_ns=15e6, spread=0.1)
    stock = Script(lambda: stock_of(SOFTMAX), cost_ns=10e6, spread=0.1)
    lane = Lane(tries=40)
    verdict = gate(tmp_path, Script(lambda: softmax, spread=0.1), stock=stock, parent=parent, lane=lane, seed=seed)
    assert (verdict.outcome, found(verdict)) == ("PASS", set())
    assert verdict.over_parent is not None
    assert verdict.speedup is not None
    assert verdict.needed is not None
    assert verdict.over_parent.mid == pytest.approx(3, rel=0.1)
    assert verdict.speedup.mid == pytest.approx(2, rel=0.1)
    assert verdict.speedup.low > verdict.needed
    assert all(set(time.samples) == {"stock", "parent", "candidate"} for time in verdict.times)


@pytest.mark.parametrize(("cost_ns", "detector"), [(7e6, "slower"), (5e6, "noise")])
def test_a_parent_that_is_beaten_is_not_enough(tmp_path: Path, cost_ns: float, detector: str) -> None:
    """The stock op, which takes 5 ms, would still be the better one."""
    parent = Script(lambda: softmax, cost_ns=15e6)
    verdict = gate(tmp_path, Script(lambda: softmax, cost_ns=cost_ns), parent=parent)
    assert (verdict.outcome, found(verdict)) == ("FAIL", {detector})
    (finding,) = verdict.findings
    assert re.search(r"x the speed of the parent \(.*; .*x the speed of the stock op \(", finding.detail)


@pytest.mark.parametrize("cost_ns", [5e6, 2.5e6])
def test_nor_is_a_stock_op_that_is_beaten(tmp_path: Path, cost_ns: float) -> None:
    parent = Script(lambda: softmax, cost_ns=2.5e6)
    verdict = gate(tmp_path, Script(lambda: softmax, cost_ns=cost_ns), parent=parent)
    assert verdict.outcome == "FAIL"


def test_a_time_below_what_any_call_takes_is_impossible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MOST_CALLS", 4)
    stock = Script(lambda: stock_of(SOFTMAX), spread=0.0)
    verdict = gate(tmp_path, Script(lambda: softmax, cost_ns=50, spread=0.0), stock=stock)
    assert (verdict.outcome, found(verdict)) == ("FAIL", {"impossible-time"})


def test_work_that_the_childs_clock_does_not_see_is_suspect(tmp_path: Path) -> None:
    verdict = gate(tmp_path, fast(hidden=0.5))
    assert (verdict.outcome, found(verdict)) == ("SUSPECT", {"clock-mismatch"})


def test_calls_that_drown_in_the_round_trip_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MOST_CALLS", 4)
    stock = Script(lambda: stock_of(SOFTMAX), cost_ns=10, trip_ns=1e6, spread=0.3)
    verdict = gate(tmp_path, Script(lambda: softmax, cost_ns=10, trip_ns=8e5, spread=0.3), stock=stock)
    assert (verdict.outcome, found(verdict)) == ("UNKNOWN", {"noise"})


def test_a_machine_that_is_too_busy_for_the_rounds_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "PATIENCE_NS", 5e7)
    verdict = gate(tmp_path, fast())
    assert (verdict.outcome, found(verdict)) == ("UNKNOWN", {"noise"})
    assert verdict.times == ()


def test_a_winner_that_does_not_win_again_is_not_promoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faster in the process that was chosen, and as slow as stock in the next."""
    made = []

    def once(*args: Any) -> Any:
        made.append(decide(*args))
        return replace(made[-1], outcome="PASS", detector=None) if len(made) == 1 else made[-1]

    monkeypatch.setattr(timing, "decide", once)
    verdict = gate(tmp_path, Script(lambda: softmax))
    assert len(made) == 2
    assert found(verdict) == {"noise"}


@pytest.mark.parametrize(("trip_ns", "calls"), [(20_000.0, 50), (2e6, 25)])
def test_fewer_calls_are_made_where_what_surrounds_them_would_take_too_long(
    tmp_path: Path, trip_ns: float, calls: int
) -> None:
    stock = Script(lambda: stock_of(SOFTMAX), cost_ns=2e5, trip_ns=trip_ns, spread=0.0)
    verdict = gate(tmp_path, Script(lambda: softmax, cost_ns=1e5, trip_ns=trip_ns, spread=0.0), stock=stock)
    assert verdict.outcome == "PASS"
    assert {time.calls for time in verdict.times} == {calls}


def test_every_timed_answer_is_checked(tmp_path: Path) -> None:
    verdict = gate(tmp_path, fast())
    timed = next(cost for cost in verdict.costs if cost.stage == "timing")
    requests = sum(2 * time.pairs * time.calls for time in verdict.times)  # of the second timing alone
    assert timed.checked == timed.of >= 2 * requests
