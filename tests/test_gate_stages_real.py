"""The stages on real processes. What is timed here is only what a loaded machine cannot turn round."""

from functools import partial
from pathlib import Path

import pytest

from qrprof.planner.gate.gate import run_gate
from qrprof.planner.gate.limits import Limits
from qrprof.planner.gate.qr_task import built_in
from qrprof.planner.gate.records import STAGES, Stage, Verdict
from qrprof.planner.gate.worker import started

STOCK = "import torch\n\n\ndef candidate(A):\n    return torch.geqrf(A)\n"
SLOWER = "import torch\n\n\ndef candidate(A):\n    torch.geqrf(A), torch.geqrf(A)\n    return torch.geqrf(A)\n"
LAST_BATCH = """
import torch

last = None


def candidate(A):
    global last
    if last is None or last[0] is not A:
        last = A, torch.geqrf(A)
    return last[1][0].mT.contiguous().mT, last[1][1].clone()
"""


def gate(tmp_path: Path, source: str, *, parent: str = "", until: Stage = "holdout") -> Verdict:
    files = {"candidate.py": source, "parent.py": parent}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return run_gate(
        built_in("small", "geqrf", "cpu"),
        tmp_path / "candidate.py",
        tmp_path / "parent.py" if parent else None,
        workers=partial(started, device="cpu", limits=Limits()),
        until=until,
    )


def found(verdict: Verdict) -> set[str]:
    return {finding.detector for finding in verdict.findings if finding.outcome != "PASS"}


def test_a_right_candidate_gets_as_far_as_the_timing(tmp_path: Path) -> None:
    verdict = gate(tmp_path, STOCK, until="replay")
    assert (verdict.outcome, found(verdict)) == ("PASS", set())
    assert tuple(cost.stage for cost in verdict.costs) == STAGES[: STAGES.index("timing")]
    assert all(cost.seconds > 0 and cost.checked == cost.of for cost in verdict.costs)
    assert verdict.skipped == ()
    assert verdict.layer in ("bubblewrap", "namespaces", "none")


@pytest.mark.alone
@pytest.mark.slow
def test_an_answer_kept_for_the_same_object_is_named(tmp_path: Path) -> None:
    assert found(gate(tmp_path, LAST_BATCH)) == {"wrong", "stale-pointer"}


@pytest.mark.alone
@pytest.mark.slow
def test_what_changes_nothing_is_not_promoted(tmp_path: Path) -> None:
    verdict = gate(tmp_path, STOCK)
    assert verdict.outcome != "PASS"
    assert "fallback" in found(verdict)
    assert {cost.stage for cost in verdict.costs} == set(STAGES) - {"holdout"}
    assert all(time.pairs >= 10 for time in verdict.times)


@pytest.mark.alone
@pytest.mark.slow
def test_a_parent_three_times_as_slow_is_beaten_and_the_stock_op_is_not(tmp_path: Path) -> None:
    verdict = gate(tmp_path, STOCK, parent=SLOWER)
    assert verdict.over_parent is not None
    assert verdict.needed is not None
    assert verdict.over_parent.low > verdict.needed
    assert verdict.outcome != "PASS"
    assert {"noise", "slower"} & found(verdict)
