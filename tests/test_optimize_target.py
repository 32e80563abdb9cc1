"""The choice of a target: the first that is worth it and can be judged, with the reasons in numbers."""

from dataclasses import replace

import pytest
from optimize_scripted import TASK

from qrprof.planner.estimate import Basis, Estimate
from qrprof.planner.gate.records import Task
from qrprof.planner.optimize.records import Budget, Stakes
from qrprof.planner.optimize.target import Chosen, Nothing, Step, choose, plan, wanted
from qrprof.planner.targets import Target
from qrprof.profiler.errors import Exit, QrprofError

MS = 1e6
STEP = Step(100 * MS, 0.01)


def target(key: str, gain: tuple[float, float | None, float], ns: float = 40.0, **fields: object) -> Target:
    """An op of `ns` whose gain is `gain`, all ms."""
    low, mid, high = (None if part is None else part * MS for part in gain)
    assert low is not None
    assert high is not None
    basis = Basis.CEILING if mid is None else Basis.ROOFLINE
    left = Estimate(ns * MS - high, None if mid is None else ns * MS - mid, ns * MS - low, basis)
    made = Target(
        key, "op", 10.0, ns * MS, ns / 100, 100 / (100 - ns), left, Estimate(low, mid, high, basis), None, False, None,
        "Replace it.", "It is slow.",
    )  # fmt: skip
    return replace(made, **fields)  # type: ignore[arg-type]


QR = target("aten::geqrf", (10, 20, 30))
BMM = target("aten::bmm", (5, 8, 10), ns=15)
FIX = replace(QR, key="fix:fused", kind="fix", advice="Give AdamW fused=True.", achievable_ns=None)


def task_of(key: str) -> Task:
    if key == "aten::sort":
        raise QrprofError("no task for aten::sort: it has several right answers", Exit.USAGE)
    return replace(TASK, id=key)


def chosen(*targets: Target, tried: dict[str, str] | None = None, step: Step = STEP) -> Chosen:
    found = choose(targets, task_of, step, tried)
    assert isinstance(found, Chosen)
    return found


def refused(*targets: Target, tried: dict[str, str] | None = None, step: Step = STEP) -> str:
    found = choose(targets, task_of, step, tried)
    assert isinstance(found, Nothing)
    return found.why


def asked_for(key: str, *targets: Target) -> Chosen:
    return wanted(targets, key, task_of, STEP)


def test_the_first_op_that_is_worth_it_is_chosen_with_its_numbers() -> None:
    found = chosen(QR, BMM)
    assert (found.target, found.task.id) == (QR, "aten::geqrf")
    assert found.why == ("geqrf comes first: its likely gain is 20.0 ms of 100 ms a step, 20.0 %, its ceiling 1.67x")
    assert found.stakes == Stakes(op_ns=40 * MS, least_ns=10 * MS, gain_ns=30 * MS, noise_ns=2 * MS)


def test_what_the_gate_cannot_judge_is_passed_over_and_said_so() -> None:
    found = chosen(target("aten::sort", (10, 20, 30)), QR)
    assert found.target == QR
    assert found.why.endswith("20.0 %, but no task for aten::sort: it has several right answers")


def test_a_cheaper_fix_is_named_before_a_kernel() -> None:
    assert "before it fix:fused: no op; Give AdamW fused=True." in chosen(FIX, QR).why


def test_the_next_target_comes_with_the_reason_why_the_last_one_ended() -> None:
    found = chosen(QR, BMM, tried={"aten::geqrf": "nothing better in 30 candidates"})
    assert found.target == BMM
    assert found.why.endswith("; before it geqrf: nothing better in 30 candidates")


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (target("aten::mm", (0, None, 30)), "nothing but its ceiling is known, 30.0 ms of 100 ms a step"),
        (target("aten::mm", (0, 4, 30)), "likely gain is 4.00 ms of 100 ms a step, 4.0 %, and less than 5.0 %"),
        (target("aten::mm", (0, 9, 30), dont_bother="at most 1 ms"), "mm: at most 1 ms"),
        (target("aten::gelu", (10, 20, 30), advice="Fuse it."), "gelu: elementwise; Fuse it."),
        (target("aten::add_", (10, 20, 30), advice="Fuse it."), "add_: elementwise; Fuse it."),
        (replace(QR, gain_ns=None, achievable_ns=None), "not comparable"),
    ],
)
def test_nothing_is_worth_it_with_numbers(one: Target, reason: str) -> None:
    assert refused(one).startswith("nothing is worth it; ")
    assert reason in refused(one)


def test_a_gain_under_twice_the_noise_is_not_worth_it() -> None:
    assert "less than 30.0 % is not worth it" in refused(QR, step=Step(100 * MS, 0.15))
    assert chosen(QR, step=Step(100 * MS, None)).stakes == Stakes(40 * MS, 10 * MS, 30 * MS, None)


def test_no_targets_is_an_answer_too() -> None:
    assert refused() == "nothing is worth it; the run has no targets"


# --- asked for


def test_what_a_person_asks_for_is_taken_though_it_is_not_worth_it() -> None:
    small = target("aten::mm", (0, 4, 30))
    found = asked_for("mm", QR, small)
    assert found.target == small
    assert found.why.startswith("mm was asked for, though its likely gain is 4.00 ms")
    assert asked_for("aten::geqrf", QR).why == "geqrf was asked for"


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (
            "aten::geqr",
            "the run has no target 'aten::geqr'; nearest: aten::geqrf, aten::sort; list all with `qrprof rank`",
        ),
        ("fix:fused", "fix:fused is no op that a kernel could replace: Give AdamW fused=True."),
        ("aten::sort", "several right answers"),
    ],
)
def test_what_cannot_be_optimized_is_refused(key: str, problem: str) -> None:
    with pytest.raises(QrprofError) as caught:
        asked_for(key, QR, FIX, target("aten::sort", (1, 2, 3)))
    assert problem in str(caught.value)
    assert caught.value.exit_code == Exit.USAGE


# --- the plan


def test_the_plan_says_what_may_be_gained_and_what_it_may_cost() -> None:
    found = plan(chosen(QR), STEP, Budget(), "search")
    assert found["text"] == (
        "geqrf: at most the step becomes 1.67x as fast, its likely gain is 20.0 ms of 100 ms a step, 20.0 %;"
        " it may cost 1,800 s, 40 evaluations"
    )
    assert found["ceiling_x"] == pytest.approx(1 / 0.6)
    assert "1,800 s, 40 evaluations, $2.00" in str(plan(chosen(QR), STEP, Budget(), "llm")["text"])
    unknown = asked_for("geqrf", replace(QR, gain_ns=None, achievable_ns=None))
    assert unknown.stakes is None
    assert "its gain is not known" in str(plan(unknown, STEP, Budget(), "llm")["text"])
