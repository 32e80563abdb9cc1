"""How the loop ends and goes on: by budgets, by machines that fail, by a person's hand."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from optimize_scripted import MANY, TASK, Bench, ScriptedProposer, ended, file, kinds, of, proposed

from qrprof.planner.optimize.control import Control
from qrprof.planner.optimize.loop import optimize
from qrprof.planner.optimize.prices import Price
from qrprof.planner.optimize.records import Budget, BudgetSpent, Event, Job, Known, Proposed, Usage
from qrprof.profiler.errors import Exit, QrprofError


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# --- budgets


def test_evaluations_are_left_for_the_gate_of_the_best(bench: Bench) -> None:
    evaluator = bench.evaluator()
    events = bench.run(bench.begin(budget=Budget(evaluations=5)), ScriptedProposer(file(2.0), *MANY), evaluator)
    assert [job.rung for job in evaluator.jobs] == ["preview"] * 3 + ["gate", "sealed"]
    assert ended(events)["end"] == "budget"
    assert ended(events)["verdict"] is not None


def test_with_one_evaluation_left_it_is_the_sealed_one(bench: Bench) -> None:
    evaluator = bench.evaluator()
    bench.run(bench.begin(budget=Budget(evaluations=2)), ScriptedProposer(file(2.0), *MANY), evaluator)
    assert [job.rung for job in evaluator.jobs] == ["preview", "sealed"]


def test_no_query_of_the_holdout_is_spent_where_there_is_no_time_for_it(bench: Bench) -> None:
    evaluator = bench.evaluator(seconds=30.0)
    events = bench.run(bench.begin(budget=Budget(seconds=85.0)), ScriptedProposer(file(2.0)), evaluator)
    assert [job.rung for job in evaluator.jobs] == ["preview", "gate"]
    assert bench.journal.queries(TASK) == 0
    assert "but for 30 s that the last look at the best takes" in ended(events)["text"]


def test_going_on_without_a_budget_says_nothing_twice(bench: Bench) -> None:
    start = bench.begin(budget=Budget(evaluations=1), stock=False)
    for _ in range(3):
        bench.run(start, ScriptedProposer(file(0.9), file(0.8)))
    events = bench.journal.events("test")
    assert kinds(events).count("resumed") == 2
    assert [one["number"] for one in of("proposed", events)] == [1, 2]


def test_seconds_end_it_and_what_is_best_is_said(bench: Bench) -> None:
    evaluator = bench.evaluator(seconds=30.0)
    events = bench.run(bench.begin(budget=Budget(seconds=100.0)), ScriptedProposer(file(2.0), *MANY), evaluator)
    assert [job.rung for job in evaluator.jobs] == ["preview"] * 3 + ["gate"]
    assert (ended(events)["end"], ended(events)["best"], ended(events)["verdict"]) == ("budget", 1, None)
    assert "the gate was not asked: the 100 s of the budget are used up" in ended(events)["text"]


def test_gpu_seconds_are_those_of_the_slots(bench: Bench) -> None:
    start = bench.begin(task=replace(TASK, device="cuda"), budget=Budget(gpu_seconds=60.0))
    meter = bench.meter(start)
    events = bench.run(start, ScriptedProposer(*MANY), bench.evaluator(seconds=20.0), meter=meter)
    assert ended(events)["end"] == "budget"
    assert meter.total().gpu_seconds == 60.0


def test_a_proposer_without_budget_ends_it_with_the_best(bench: Bench) -> None:
    def broke(known: Known) -> Proposed:
        raise BudgetSpent("a request of up to $0.30 may exceed the $2")

    events = bench.run(bench.begin(), ScriptedProposer(file(2.0), broke))
    assert ended(events)["end"] == "budget"
    assert ended(events)["text"].startswith("a request of up to $0.30 may exceed the $2; candidate 1 passed")


def test_no_proposal_is_asked_for_that_could_not_be_evaluated(bench: Bench) -> None:
    proposer = ScriptedProposer(*MANY)
    bench.run(bench.begin(budget=Budget(evaluations=4)), proposer)
    assert len(proposer.told) == 2


def test_usage_is_shown_by_role(bench: Bench) -> None:
    start = bench.begin()
    meter = bench.meter(start)

    def paid(known: Known) -> Proposed:
        meter.settle(meter.reserve("proposer", 100, 1000, Price(input=1.0, output=1.0)), 100, 50)
        return proposed(file(2.0))

    events = bench.run(start, ScriptedProposer(paid, name="llm"), meter=meter)
    shown = {one["role"]: one for one in of("usage", events)}
    assert (shown["proposer"]["tokens_out"], shown["proposer"]["requests"]) == (50, 1)
    assert (shown["evaluator"]["evaluations"], shown["evaluator"]["requests"]) == (3, 0)
    assert bench.journal.spent(start.id)["proposer"] == Usage(dollars=150e-6, tokens_in=100, tokens_out=50, requests=1)


# --- machines that fail


def test_three_evaluations_lost_in_a_row_are_an_end(bench: Bench) -> None:
    lost = [file(2.0, "INFRA", note=str(number)) for number in range(9)]
    events = bench.run(bench.begin(), ScriptedProposer(lost[0], file(1.5), *lost[1:]))
    assert len(of("proposed", events)) == 5
    assert ended(events)["end"] == "failed"
    assert "3 evaluations in a row were lost: the host is gone" in ended(events)["text"]
    assert bench.journal.tries(TASK) == 1


def test_a_lost_gate_says_nothing_of_the_candidate(bench: Bench) -> None:
    events = bench.run(bench.begin(), ScriptedProposer(file(2.0, gate="INFRA")))
    (one,) = bench.journal.candidates("test")
    assert (one.rung, one.outcome) == ("preview", "PASS")
    assert "candidate 1 did not pass the gate, INFRA: the host is gone" in ended(events)["text"]
    assert (ended(events)["best"], ended(events)["verdict"]) == (1, None)


def test_what_a_person_has_to_mend_is_raised_after_the_end_is_kept(bench: Bench) -> None:
    def keyless(known: Known) -> Proposed:
        raise QrprofError("no key: set OPENAI_API_KEY")

    with pytest.raises(QrprofError, match="no key"):
        bench.run(bench.begin(), ScriptedProposer(file(2.0), keyless))
    last = bench.journal.events("test")[-1]
    assert (last.kind, last.record["end"], last.record["best"]) == ("ended", "failed", 1)


# --- a model that never answers


@pytest.mark.parametrize("seconds", [85.0, 1e6])
def test_where_no_request_was_ever_answered_that_is_the_end_and_the_exit_code_is_3(
    bench: Bench, seconds: float
) -> None:
    def silent(known: Known) -> Proposed:
        bench.clock.seconds += 30.0
        return Proposed(troubles=(("connection", "it is not reached"),))

    evaluator, proposer = bench.evaluator(), ScriptedProposer(*[silent] * 9, name="llm", unheard="it is not reached")
    with pytest.raises(QrprofError, match="no request to the model was answered: it is not reached") as raised:
        bench.run(bench.begin(budget=Budget(seconds=seconds), stock=False), proposer, evaluator)
    assert raised.value.exit_code == Exit.NO_DEVICE
    last = bench.journal.events("test")[-1]
    assert (last.kind, last.record["end"]) == ("ended", "failed")
    assert last.record["text"] == "no request to the model was answered: it is not reached; nothing was tried"
    assert evaluator.jobs == []


def test_what_was_found_before_a_model_fell_silent_is_judged_all_the_same(bench: Bench) -> None:
    control, evaluator = Control(), bench.evaluator()
    evaluator.before = lambda jobs: control.cancel()
    bench.run(bench.begin(), ScriptedProposer(file(2.0)), evaluator, control=control)
    silent = Proposed(troubles=(("connection", "it is not reached"),))
    proposer = ScriptedProposer(*[silent] * 9, name="llm", unheard="it is not reached")
    events = bench.run(bench.journal.start("test"), proposer)
    assert (ended(events)["end"], ended(events)["best"]) == ("exhausted", 1)
    assert ended(events)["verdict"] is not None


# --- a person's hand


def test_cancelled_between_evaluations_it_ends_without_a_gate(bench: Bench) -> None:
    control, evaluator = Control(), bench.evaluator()
    evaluator.before = lambda jobs: control.cancel()
    events = bench.run(bench.begin(), ScriptedProposer(file(2.0), file(3.0)), evaluator, control=control)
    assert len(evaluator.jobs) == 1
    assert (ended(events)["end"], ended(events)["best"]) == ("cancelled", 1)


def test_cancelling_ends_what_runs_and_it_is_evaluated_when_the_optimization_goes_on(bench: Bench) -> None:
    control, evaluator = Control(), bench.evaluator()

    def cancel(jobs: object) -> None:
        control.cancel()
        assert evaluator.cancelled.wait(30)

    evaluator.before = cancel
    events = bench.run(bench.begin(), ScriptedProposer(file(2.0)), evaluator, control=control)
    assert of("judged", events) == []
    assert ended(events)["end"] == "cancelled"
    events = bench.run(bench.journal.start("test"), ScriptedProposer(file(2.0)))
    assert kinds(events)[0] == "resumed"
    assert ended(events)["best"] == 1
    assert bench.journal.spent("test")["evaluator"].evaluations == 4


def test_a_query_that_was_cut_off_is_made_again_only_for_what_is_best_in_the_end(bench: Bench) -> None:
    control, evaluator = Control(), bench.evaluator()

    def cancel(jobs: Sequence[Job]) -> None:
        if jobs[0].rung == "sealed":
            control.cancel()
            assert evaluator.cancelled.wait(30)

    evaluator.before = cancel
    start = bench.begin()
    bench.run(start, ScriptedProposer(file(2.0)), evaluator, control=control)
    assert bench.journal.queries(TASK) == 1
    again = bench.evaluator()
    events = bench.run(start, ScriptedProposer(file(2.0), file(3.0)), again)
    assert [(job.rung, job.source, job.query) for job in again.jobs[1:]] == [
        ("gate", file(3.0), None),
        ("sealed", file(3.0), 2),
    ]
    assert ended(events)["best"] == 2


def test_an_evaluator_that_missed_a_cancel_hears_the_next(bench: Bench) -> None:
    control, evaluator = Control(), bench.evaluator()

    def begins_late(jobs: object) -> None:
        control.cancel()
        assert evaluator.cancelled.wait(30)
        evaluator.cancelled.clear()
        assert evaluator.cancelled.wait(10)

    evaluator.before = begins_late
    events = bench.run(bench.begin(), ScriptedProposer(file(2.0)), evaluator, control=control)
    assert of("judged", events) == []


def test_the_budgets_seconds_end_what_runs(bench: Bench) -> None:
    evaluator = bench.evaluator()

    def slow(jobs: object) -> None:
        if len(evaluator.jobs) == 2:
            bench.clock.seconds += 1000.0
            assert evaluator.cancelled.wait(30)

    evaluator.before = slow
    events = bench.run(bench.begin(budget=Budget(seconds=500.0)), ScriptedProposer(file(2.0), file(3.0)), evaluator)
    assert [one["number"] for one in of("judged", events)] == [1]
    assert ended(events)["end"] == "budget"
    assert "what ran was ended when the seconds of the budget were used up" in ended(events)["text"]


def test_gpu_seconds_end_what_runs(bench: Bench) -> None:
    evaluator = bench.evaluator(seconds=0.0)

    def slow(jobs: object) -> None:
        bench.clock.seconds += 31.0
        assert evaluator.cancelled.wait(30)
        evaluator.seconds = 31.0

    evaluator.before = slow
    start = bench.begin(task=replace(TASK, device="cuda"), budget=Budget(gpu_seconds=30.0))
    events = bench.run(start, ScriptedProposer(file(2.0), file(3.0)), evaluator)
    assert (len(evaluator.jobs), of("judged", events)) == (1, [])
    assert ended(events)["end"] == "budget"


def test_gpu_seconds_count_also_where_an_evaluation_raises(bench: Bench) -> None:
    def breaks(jobs: object) -> None:
        bench.clock.seconds += 20.0
        raise QrprofError("the samples are gone")

    with pytest.raises(QrprofError, match="samples"):
        bench.run(
            bench.begin(task=replace(TASK, device="cuda")), ScriptedProposer(file(2.0)), bench.evaluator(before=breaks)
        )
    assert bench.journal.spent("test")["evaluator"].gpu_seconds == 20.0


def test_no_more_is_wanted_than_can_be_evaluated(bench: Bench) -> None:
    proposer = ScriptedProposer([file(1.1), file(1.2)], file(1.3))
    bench.run(bench.begin(budget=Budget(evaluations=5)), proposer, bench.evaluator(slots=2))
    assert [known.wanted for known in proposer.told] == [2, 1]


def test_the_seconds_of_all_that_ran_are_kept(bench: Bench) -> None:
    bench.run(bench.begin(), ScriptedProposer(file(1.1), file(0.9)))
    assert bench.journal.spent("test")["evaluator"].seconds == 40.0


def test_a_gain_over_a_starting_file_is_told_beside_that_over_the_stock_op(bench: Bench) -> None:
    events = bench.run(bench.begin(stock=False), ScriptedProposer(file(2.0)))
    assert "with 2.00x the speed of the starting file, and 2.00x the speed of the stock op" in ended(events)["text"]


def test_a_pause_costs_no_seconds(bench: Bench) -> None:
    control, start = Control(), bench.begin(budget=Budget(seconds=100.0))
    control.pause()
    seen: list[Event] = []

    def go_on() -> None:
        bench.clock.seconds += 5000.0
        control.go_on()

    meter = bench.meter(start)
    events = optimize(start, ScriptedProposer(file(2.0)), bench.evaluator(), bench.journal, meter, control=control)
    for event in events:
        seen.append(event)
        if event.kind == "paused":
            threading.Timer(0.05, go_on).start()
    assert kinds(seen)[:3] == ["started", "paused", "resumed"]
    assert meter.seconds_left() == 70.0
    assert ended(seen)["verdict"] is not None
