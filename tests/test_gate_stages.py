"""The stages against scripted workers: each detector that a stage owns, by what a candidate would do to meet it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gate_scripted import GEQRF, SOFTMAX, Candidate, Script, case, fast, found, gate, imprecise, softmax, stock_of
from torch import Tensor

from qrprof.planner.gate.gate import Lane
from qrprof.planner.gate.records import STAGES, ArgSpec, TaskCase, Verdict
from qrprof.planner.gate.replies import Ended, Sign

# --- what passes


def test_a_right_and_faster_candidate_passes_every_stage(tmp_path: Path) -> None:
    verdict = gate(tmp_path, fast())
    assert (verdict.outcome, found(verdict)) == ("PASS", set())
    assert tuple(cost.stage for cost in verdict.costs) == STAGES
    assert all(cost.checked == cost.of for cost in verdict.costs)
    assert verdict.skipped == ()
    assert verdict.holdout_queries == 1
    assert verdict.speedup is not None
    assert verdict.speedup.mid == pytest.approx(2.5, rel=0.05)
    assert [time.case for time in verdict.times] == ["16x8", "8x12"]
    for time in verdict.times:
        assert (time.stock_ns, time.candidate_ns) == pytest.approx((5e6, 2e6), rel=0.05)


def test_a_qr_that_is_the_stock_op_but_faster_passes(tmp_path: Path) -> None:
    verdict = gate(tmp_path, fast(torch.geqrf), task=GEQRF)
    assert (verdict.outcome, found(verdict)) == ("PASS", set())


def test_the_last_stage_can_be_named(tmp_path: Path) -> None:
    verdict = gate(tmp_path, Script(lambda: softmax), until="replay")
    assert (verdict.outcome, verdict.costs[-1].stage, verdict.speedup) == ("PASS", "replay", None)


# --- what is wrong with values


def zeros(x: Tensor, dim: int, half: bool) -> Tensor:
    return torch.zeros_like(x)


def uniform(x: Tensor, dim: int, half: bool) -> Tensor:
    return torch.rand(x.shape, generator=torch.Generator().manual_seed(0))


def for_one_shape(x: Tensor, dim: int, half: bool) -> Tensor:
    return imprecise(x, dim, half) if x.shape[1] == 12 else softmax(x, dim)


def for_known_shapes(x: Tensor, dim: int, half: bool) -> Tensor:
    return softmax(x, dim) if x.shape in ((16, 8), (8, 12)) else imprecise(x, dim, half)


def first_triangular(a: Tensor) -> tuple[Tensor, Tensor]:
    if a.isfinite().all() and not a[0].tril(-1).any():
        return a.mT.contiguous().mT, a.new_zeros(len(a), min(a.shape[-2:]))
    return torch.geqrf(a)


def knows_seed_0() -> Candidate:
    known = [torch.randn(16, 8, generator=torch.Generator().manual_seed(0))]
    known += [torch.randn(8, 12, generator=torch.Generator().manual_seed(0))]
    return lambda x, dim, half: softmax(x, dim) if any(x.equal(one) for one in known) else imprecise(x, dim, half)


@pytest.mark.parametrize(
    ("candidate", "detectors", "stage"),
    [
        (zeros, {"wrong", "null-answer"}, "contract"),
        (lambda x, dim, half: x.clone(), {"wrong", "null-answer"}, "contract"),
        (uniform, {"wrong", "insensitive"}, "contract"),
        (imprecise, {"wrong"}, "contract"),
        (for_known_shapes, {"wrong", "shape-dependent"}, "adversarial"),
    ],
)
def test_wrong_answers(tmp_path: Path, candidate: Candidate, detectors: set[str], stage: str) -> None:
    verdict = gate(tmp_path, fast(candidate))
    assert (verdict.outcome, found(verdict)) == ("FAIL", detectors)
    assert verdict.costs[-1].stage == stage


def development_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: Script) -> Verdict:
    """Without the contract stage, which would find it first."""
    from qrprof.planner.gate.trial import Checked

    monkeypatch.setattr("qrprof.planner.gate.gate.contract", lambda trial: Checked())
    return gate(tmp_path, script)


def test_wrong_for_one_shape_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = development_alone(tmp_path, monkeypatch, fast(for_one_shape))
    assert found(verdict) == {"wrong", "shape-dependent"}
    assert {finding.case for finding in verdict.findings if finding.detector == "wrong"} == {"8x12"}


def test_right_for_the_seed_that_anybody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = development_alone(tmp_path, monkeypatch, Script(knows_seed_0))
    assert found(verdict) == {"wrong", "seed-known"}


def test_a_kernel_that_looks_at_the_first_matrix_is_caught_by_a_mixed_batch(tmp_path: Path) -> None:
    verdict = gate(tmp_path, fast(first_triangular), task=GEQRF)
    assert {"wrong", "mixed-batch"} <= found(verdict)
    assert verdict.costs[-1].stage == "adversarial"


def test_wrong_in_the_holdout_is_told_without_a_case_or_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = (case(3, 5, 1.0),)
    monkeypatch.setattr("qrprof.planner.gate.gate.holdout_cases", lambda task, rng: hidden)
    verdict = gate(tmp_path, fast(lambda x, dim, half: imprecise(x, dim, half) if x.shape[1] == 5 else softmax(x, dim)))
    (finding,) = (finding for finding in verdict.findings if finding.outcome != "PASS")
    assert (finding.detector, finding.outcome, finding.case, finding.stage) == ("seed-known", "FAIL", None, "holdout")
    assert not any(character.isdigit() for character in finding.detail)


def test_a_suspect_uses_no_query_of_the_holdout(tmp_path: Path) -> None:
    def query() -> int:
        raise AssertionError("the holdout is for finalists")

    verdict = gate(tmp_path, fast(hidden=0.5), lane=Lane(query=query))
    assert (verdict.outcome, verdict.costs[-1].stage, verdict.holdout_queries) == ("SUSPECT", "timing", 0)


def test_a_holdout_that_is_used_up_is_unknown(tmp_path: Path) -> None:
    verdict = gate(tmp_path, fast(), lane=Lane(query=lambda: None))
    assert (verdict.outcome, verdict.holdout_queries) == ("UNKNOWN", 0)


# --- the contract


class Lazy(Tensor):
    pass


def named(value: Tensor) -> Tensor:
    value.note = "mine"  # type: ignore[attr-defined]
    return value


def zeroing(x: Tensor, dim: int, half: bool) -> Tensor:
    out = softmax(x, dim)
    x[0, 0] = 0
    return out


@pytest.mark.parametrize(
    ("candidate", "detector"),
    [
        (lambda x, dim, half: softmax(x, dim).double(), "contract"),
        (lambda x, dim, half: softmax(x, dim)[:-1], "contract"),
        (lambda x, dim, half: softmax(x, dim).mT.contiguous().mT, "contract"),
        (lambda x, dim, half: (softmax(x, dim), x.clone()), "contract"),
        (lambda x, dim, half: (), "contract"),
        (lambda x, dim, half: softmax(x, dim).as_subclass(Lazy), "not-a-tensor"),
        (lambda x, dim, half: named(softmax(x, dim)), "not-a-tensor"),
        (lambda x, dim, half: softmax(x, dim).tolist(), "not-a-tensor"),
        (lambda x, dim, half: softmax(x, dim).requires_grad_(), "autograd"),
        (lambda x, dim, half: x.copy_(softmax(x, dim)), "aliases-input"),
        (zeroing, "mutated-input"),
    ],
)
def test_the_contract(tmp_path: Path, candidate: Candidate, detector: str) -> None:
    verdict = gate(tmp_path, fast(candidate))
    assert verdict.outcome == "FAIL"
    assert detector in found(verdict)
    assert verdict.costs[-1].stage == "contract"


def test_a_candidate_that_raises(tmp_path: Path) -> None:
    def candidate(x: Tensor, dim: int, half: bool) -> Tensor:
        raise ValueError("only for square inputs")

    verdict = gate(tmp_path, fast(candidate))
    assert found(verdict) == {"crash"}
    assert "only for square inputs" in verdict.findings[0].detail


WATCHED = ("global-state", "threads", "patched", "import", "harness", "uninitialised")


@pytest.mark.parametrize("detector", WATCHED)
def test_what_the_worker_saw_fails(tmp_path: Path, detector: Any) -> None:
    verdict = gate(tmp_path, fast(watched=lambda number: (Sign(detector, "seen"),)))
    assert (verdict.outcome, found(verdict)) == ("FAIL", {detector})


@pytest.mark.parametrize("detector", ["late-work", "side-stream"])
def test_what_the_worker_saw_of_a_call_fails(tmp_path: Path, detector: Any) -> None:
    verdict = gate(tmp_path, fast(late=(Sign(detector, "seen"),)))
    assert (verdict.outcome, found(verdict)) == ("FAIL", {detector})
    assert {finding.case for finding in verdict.findings} == {"16x8", "8x12"}


def test_what_is_changed_in_a_later_call_is_seen(tmp_path: Path) -> None:
    def late(number: int) -> tuple[Sign, ...]:
        return (Sign("patched", "Tensor.clone"),) if number > 10 else ()

    verdict = gate(tmp_path, fast(watched=late))
    assert (verdict.outcome, found(verdict), verdict.costs[-1].stage) == ("FAIL", {"patched"}, "replay")


def test_memory_beyond_the_stock_ops_fails(tmp_path: Path) -> None:
    assert found(gate(tmp_path, fast(peak_bytes=400 << 20))) == {"memory"}
    within, unknown = (gate(tmp_path, fast(peak_bytes=peak)) for peak in (20 << 20, None))
    assert found(within) == found(unknown) == set()
    assert [time.peak_bytes for time in (*within.times, *unknown.times)] == [20 << 20, 20 << 20, None, None]


@pytest.mark.parametrize(
    ("ran", "declared", "detectors", "outcome"),
    [
        (("rows_kernel",), ("rows",), set(), "PASS"),
        (("library_softmax",), ("rows",), {"fallback", "relabelled"}, "FAIL"),
        (("library_softmax",), (), {"relabelled"}, "SUSPECT"),
        (("fill", "scale"), ("rows",), {"fallback"}, "FAIL"),
    ],
)
def test_kernels_that_ran(
    tmp_path: Path, ran: tuple[str, ...], declared: tuple[str, ...], detectors: set[str], outcome: str
) -> None:
    stock = Script(lambda: stock_of(SOFTMAX), kernels=("library_softmax",))
    verdict = gate(tmp_path, fast(kernels=ran, declared=declared), stock=stock)
    assert (verdict.outcome, found(verdict)) == (outcome, detectors)


# --- workers that end


@pytest.mark.parametrize("reason", ["crash", "hang", "memory-limit", "task-limit", "forged", "disk-full"])
@pytest.mark.parametrize("request_number", [1, 3, 9])
def test_a_worker_that_ends_is_the_candidates_fault(tmp_path: Path, reason: Any, request_number: int) -> None:
    verdict = gate(tmp_path, fast(ends={request_number: Ended(reason, "it is gone")}))
    assert (verdict.outcome, found(verdict)) == ("FAIL", {reason})


@pytest.mark.parametrize(("reason", "outcome"), [("build-error", "FAIL"), ("import", "FAIL"), ("no-compiler", "INFRA")])
def test_a_file_that_cannot_be_imported(tmp_path: Path, reason: Any, outcome: str) -> None:
    verdict = gate(tmp_path, fast(ends={0: Ended(reason, "line 3")}))
    assert (verdict.outcome, found(verdict), verdict.costs[-1].stage) == (outcome, {reason}, "build")


def test_a_stock_worker_that_ends_is_the_machines_fault(tmp_path: Path) -> None:
    stock = Script(lambda: stock_of(SOFTMAX), ends={6: Ended("memory-limit", "the machine is full")})
    verdict = gate(tmp_path, fast(), stock=stock)
    assert (verdict.outcome, found(verdict)) == ("INFRA", {"memory-limit"})


def test_signs_of_the_import_fail_the_build(tmp_path: Path) -> None:
    verdict = gate(tmp_path, fast(built=(Sign("import", "it imports requests"),)))
    assert (verdict.outcome, verdict.costs[-1].stage) == ("FAIL", "build")


# --- tasks that prove nothing


@pytest.mark.parametrize(
    ("scale", "detector"),
    [(0.0, "null-answer"), (0.0, "insensitive")],
)
def test_a_task_that_accepts_anything_is_unknown(tmp_path: Path, scale: float, detector: str) -> None:
    shape = ArgSpec((4, 4), "float32")
    product = replace(SOFTMAX, op="mm", development=(TaskCase("zeros", 1.0, (shape, shape), scale=scale),))
    verdict = gate(tmp_path, fast(torch.mm), task=product)
    assert verdict.outcome == "UNKNOWN"
    assert detector in found(verdict)
    assert verdict.costs[-1].stage == "null"
