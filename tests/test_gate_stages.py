"""The stages against scripted workers: each detector that a stage owns, by what a candidate would do to meet it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gate_scripted import GEQRF, SOFTMAX, Candidate, Clock, Script, case, softmax, stock_of, workers
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from qrprof.planner.gate import rounds, timing
from qrprof.planner.gate.gate import Lane, run_gate
from qrprof.planner.gate.promote import decide
from qrprof.planner.gate.records import STAGES, ArgSpec, Domain, Stage, Task, TaskCase, Verdict
from qrprof.planner.gate.replies import Ended, Sign
from qrprof.planner.gate.sizes import REQUEST, REQUEST_ELEMENTS, elements, fit, requests
from qrprof.planner.gate.trial import Input

FIRST = Lane()


def gate(
    tmp_path: Path,
    script: Script,
    *,
    task: Task = SOFTMAX,
    parent: Script | None = None,
    stock: Script | None = None,
    until: Stage = "holdout",
    lane: Lane = FIRST,
    seed: int = 0,
) -> Verdict:
    clock = Clock()
    files = {"stock.py": stock or Script(lambda: stock_of(task)), "candidate.py": script}
    paths = {name: tmp_path / name for name in ("candidate.py", "parent.py")}
    for path in paths.values():
        path.write_text("def candidate(*args): ...\n", encoding="utf-8")
    if parent:
        files["parent.py"] = parent
    seeds = iter(range(1000 * seed + 1, 10**9))
    return run_gate(
        task,
        paths["candidate.py"],
        paths["parent.py"] if parent else None,
        workers=workers(files, clock),
        clock=clock,
        seeds=lambda: next(seeds),
        lane=lane,
        until=until,
    )


def found(verdict: Verdict) -> set[str]:
    return {finding.detector for finding in verdict.findings if finding.outcome != "PASS"}


def fast(candidate: Candidate = softmax, **fields: Any) -> Script:
    return Script(lambda: candidate, cost_ns=2e6, **fields)


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


def imprecise(x: Tensor, dim: int, half: bool) -> Tensor:
    return softmax(x.bfloat16(), dim).float()


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


# --- answers that are kept


def by_object() -> Candidate:
    answers: dict[int, tuple[Tensor, Tensor]] = {}

    def candidate(x: Tensor, dim: int, half: bool) -> Tensor:
        _, answer = answers.setdefault(id(x), (x, softmax(x, dim)))  # held, so that no other gets its id
        return answer.clone()

    return candidate


def by_sum() -> Candidate:
    answers: dict[Any, Tensor] = {}

    def candidate(x: Tensor, dim: int, half: bool) -> Tensor:
        key = tuple(x.shape), round(float(x.double().sum()), 3)
        return answers.setdefault(key, softmax(x, dim)).clone()

    return candidate


def by_sample() -> Candidate:
    answers: dict[Any, Tensor] = {}

    def candidate(x: Tensor, dim: int, half: bool) -> Tensor:
        key = tuple(x.shape), tuple(x.reshape(-1)[::20].tolist())
        return answers.setdefault(key, softmax(x, dim)).clone()

    return candidate


def of_captured_memory() -> Candidate:
    """As a graph replayed on the memory that it was captured on."""
    graphs: dict[Any, Tensor] = {}

    def candidate(x: Tensor, dim: int, half: bool) -> Tensor:
        return softmax(graphs.setdefault(tuple(x.shape), x), dim)

    return candidate


def into_one_buffer() -> Candidate:
    buffers: dict[Any, Tensor] = {}

    def candidate(x: Tensor, dim: int, half: bool) -> Tensor:
        out = buffers.setdefault(tuple(x.shape), torch.empty(x.shape))
        return out.copy_(softmax(x, dim))

    return candidate


def after(count: int) -> Callable[[], Candidate]:
    """Right for so many calls, then the last answer again."""

    def make() -> Candidate:
        calls, last = 0, torch.empty(0)

        def candidate(x: Tensor, dim: int, half: bool) -> Tensor:
            nonlocal calls, last
            calls += 1
            if calls <= count or last.shape != x.shape:
                last = softmax(x, dim)
            return last.clone()

        return candidate

    return make


@pytest.mark.parametrize(
    ("make", "detector"),
    [
        (by_object, "stale-pointer"),
        (by_sum, "stale-content"),
        (by_sample, "stale-content"),
        (of_captured_memory, "graph-stale"),
        (into_one_buffer, "reused-output"),
        (after(7), "phase"),
        (after(40), "phase"),
        (after(250), "phase"),
    ],
)
def test_kept_answers(tmp_path: Path, make: Callable[[], Candidate], detector: str) -> None:
    verdict = gate(tmp_path, Script(make, cost_ns=2e6))
    assert verdict.outcome == "FAIL"
    assert found(verdict) in ({"wrong", detector}, {detector})


def test_an_answer_wrong_only_where_it_is_timed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def candidate(x: Tensor, dim: int, half: bool) -> Tensor:
        return imprecise(x, dim, half) if float(x[0, 0]) > 1.5 else softmax(x, dim)

    from qrprof.planner.gate.trial import Checked

    for stage in ("contract", "development", "adversarial", "replay"):
        monkeypatch.setattr(f"qrprof.planner.gate.gate.{stage}", lambda trial: Checked())
    verdict = gate(tmp_path, fast(candidate))
    assert {"wrong", "shape-dependent"} <= found(verdict)
    assert verdict.costs[-1].stage == "timing"


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


# --- timing


def test_a_candidate_that_changes_nothing_is_not_promoted(tmp_path: Path) -> None:
    verdict = gate(tmp_path, Script(lambda: stock_of(SOFTMAX)))
    assert verdict.outcome != "PASS"
    assert found(verdict) == {"noise", "fallback"}


@pytest.mark.parametrize("seed", range(5))
def test_a_candidate_as_fast_as_stock_is_not_promoted(tmp_path: Path, seed: int) -> None:
    verdict = gate(tmp_path, Script(lambda: softmax, spread=0.2), stock=Script(lambda: stock_of(SOFTMAX), spread=0.2))
    assert verdict.outcome != "PASS"
    assert found(verdict) == {"noise"}


def test_a_slower_candidate_is_called_slower(tmp_path: Path) -> None:
    verdict = gate(tmp_path, Script(lambda: softmax, cost_ns=7e6))
    assert (verdict.outcome, found(verdict)) == ("FAIL", {"slower"})


@pytest.mark.parametrize("seed", range(3))
def test_a_parent_three_times_as_slow_is_beaten(tmp_path: Path, seed: int) -> None:
    parent = Script(lambda: softmax, cost_ns=15e6, spread=0.1)
    lane = Lane(tries=40)
    verdict = gate(tmp_path, Script(lambda: softmax, spread=0.1), parent=parent, lane=lane, seed=seed)
    assert (verdict.outcome, found(verdict)) == ("PASS", set())
    assert verdict.over_parent is not None
    assert verdict.over_parent.mid == pytest.approx(3, rel=0.1)
    assert all(set(time.samples) == {"stock", "parent", "candidate"} for time in verdict.times)


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


def test_every_timed_answer_is_checked(tmp_path: Path) -> None:
    verdict = gate(tmp_path, fast())
    timed = next(cost for cost in verdict.costs if cost.stage == "timing")
    requests = sum(2 * time.pairs * time.calls for time in verdict.times)  # of the second timing alone
    assert timed.checked == timed.of >= 2 * requests


# --- sizes


def batch(members: int, n: int) -> TaskCase:
    return TaskCase(f"{members}x{n}x{n}", 0.5, (ArgSpec((members, n, n), "float32"),), structure="dense")


def test_a_large_case_is_asked_with_fewer_members_where_the_domain_has_such() -> None:
    task = replace(GEQRF, development=(batch(640, 256), batch(4, 32)))
    assert [case.tensors[0].shape for case in fit(task)] == [(32, 256, 256), (4, 32, 32)]
    rigid = replace(task, domain=Domain("none"))
    assert [case.tensors[0].shape for case in fit(rigid)] == [(4, 32, 32)]
    alone = replace(task, development=(batch(1, 2048),))
    assert fit(alone) == [batch(1, 2048)]


@given(st.lists(st.integers(1, 3000), max_size=40))
def test_requests_keep_the_order_and_are_not_too_large(sizes: list[int]) -> None:
    inputs = [Input(batch(1, size), ()) for size in sizes]
    found = list(requests(inputs))
    assert [one for request in found for one in request] == inputs
    for request in found:
        assert 1 <= len(request) <= REQUEST
        assert len(request) == 1 or sum(elements(one.case) for one in request) <= REQUEST_ELEMENTS
