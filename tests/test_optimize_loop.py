"""The loop, by scripted parts: what is asked, kept and decided, and when it ends."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optimize_scripted import START, TASK, Bench, ScriptedProposer, case, file, proposed

from qrprof.planner.gate.evidence import find, listed
from qrprof.planner.gate.records import Outcome
from qrprof.planner.optimize.brief import of_ledger
from qrprof.planner.optimize.compose import Part, compose, is_composed
from qrprof.planner.optimize.control import Control
from qrprof.planner.optimize.loop import optimize
from qrprof.planner.optimize.prices import Price
from qrprof.planner.optimize.records import Budget, BudgetSpent, Event, Job, Known, Proposed, Stakes, Usage
from qrprof.profiler.errors import QrprofError

MANY = [file(1.0, note=str(number)) for number in range(60)]  # none better
TWO_SIZES = replace(TASK, development=(case(4, 8, 8, weight=0.5), case(4, 64, 64, weight=0.5)))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events if event.kind != "usage"]


def of(kind: str, events: list[Event]) -> list[Any]:
    return [event.record for event in events if event.kind == kind]


def ended(events: list[Event]) -> Any:
    assert events[-1].kind == "ended"
    return events[-1].record


# --- from the first proposal to the sealed gate


def test_the_best_goes_through_the_gate_and_the_holdout(bench: Bench) -> None:
    evaluator = bench.evaluator()
    events = bench.run(bench.begin(), ScriptedProposer(file(1.2), file(3.0), file(2.0)), evaluator)
    assert kinds(events) == [
        "started", "proposed", "judged", "better", "proposed", "judged", "better", "proposed", "judged",
        "judged", "judged", "ended",
    ]  # fmt: skip
    assert [(job.rung, job.tries, job.query) for job in evaluator.jobs] == [
        *[("preview", number, None) for number in (1, 2, 3)],
        ("gate", 4, None),
        ("sealed", 5, 1),
    ]
    assert ended(events)["end"] == "exhausted"
    assert ended(events)["best"] == 2
    assert ended(events)["verdict"] == "5-sealed-" + bench.journal.candidates("test")[1].sha256[:8]
    assert "candidate 2 passed all stages, with 3.00x the speed of the stock op" in ended(events)["text"]


def test_the_ledger_holds_what_was_yielded_and_the_verdicts(bench: Bench) -> None:
    events = bench.run(bench.begin(), ScriptedProposer(file(2.0)))
    assert bench.journal.events("test") == events
    (one,) = bench.journal.candidates("test")
    assert (one.number, one.rung, one.outcome, one.rounds) == (1, "sealed", "PASS", 3)
    assert one.proposal.source == file(2.0)
    with bench.connect() as connection:
        rows = connection.execute("SELECT file, parent, outcome FROM verdicts ORDER BY rowid").fetchall()
    assert [tuple(row) for row in rows] == [("test#1", None, "UNKNOWN"), ("test#1", None, "PASS")]
    (listed,) = bench.journal.optimizations()
    assert (listed.id, listed.candidates, listed.ended) == ("test", 1, ended(events))


def test_a_verdict_that_is_kept_as_a_pass_is_one_of_all_stages(bench: Bench) -> None:
    bench.run(bench.begin(), ScriptedProposer(file(2.0, sealed="FAIL")))
    with bench.connect() as connection:
        gate, sealed = (find(connection, one.id).verdict for one in reversed(listed(connection)))
    assert (gate.outcome, sealed.outcome) == ("UNKNOWN", "FAIL")
    assert [one.detail for one in gate.findings] == ["the sealed holdout was not asked yet"]


def test_a_plan_is_said_after_the_start(bench: Bench) -> None:
    start = bench.begin(plan={"text": "mm: at most 2.00x"}, target="aten::mm")
    events = bench.run(start, ScriptedProposer())
    assert kinds(events) == ["started", "plan", "ended"]
    assert events[0].record["target"] == "aten::mm"
    assert events[1].record == {"text": "mm: at most 2.00x"}


def test_nothing_faster_is_an_end_without_a_gate(bench: Bench) -> None:
    evaluator = bench.evaluator()
    events = bench.run(bench.begin(), ScriptedProposer(file(0.9), file(5.0, "FAIL")), evaluator)
    assert {job.rung for job in evaluator.jobs} == {"preview"}
    assert (ended(events)["best"], ended(events)["verdict"]) == (None, None)
    assert ended(events)["text"] == "all answers were given; nothing was faster than the starting file"


def test_what_fails_the_gate_spends_no_query_and_makes_room_for_the_next(bench: Bench) -> None:
    evaluator = bench.evaluator()
    events = bench.run(bench.begin(), ScriptedProposer(file(3.0, gate="FAIL"), file(2.0)), evaluator)
    assert [(job.rung, job.query) for job in evaluator.jobs[2:]] == [("gate", None), ("gate", None), ("sealed", 1)]
    assert ended(events)["best"] == 2
    assert "candidate 1 did not pass the gate, FAIL: wrong on one case" in ended(events)["text"]


def test_what_fails_the_holdout_has_used_a_query_and_no_more_than_there_are_is_made(bench: Bench) -> None:
    answers = [file(3.0 - number / 10, sealed="FAIL") for number in range(3)]
    bench.run(bench.begin(), ScriptedProposer(*answers))
    evaluator = bench.evaluator()
    events = bench.run(bench.begin(), ScriptedProposer(file(5.0)), evaluator)
    assert [job.rung for job in evaluator.jobs] == ["preview", "gate"]
    assert ended(events)["verdict"] is None
    assert "candidate 1 is not sealed: all 3 queries of the holdout are used" in ended(events)["text"]


def test_what_the_holdout_refused_is_not_made_good_by_a_short_look_later(bench: Bench) -> None:
    bad = file(3.0, sealed="FAIL")
    proposer = ScriptedProposer(bad, file(1.0), proposed(file(0.9), bad, rounds=9))
    events = bench.run(bench.begin(budget=Budget(evaluations=5)), proposer)
    assert ended(events)["verdict"] is None
    assert [(one.candidate.number, one.rounds) for one in bench.journal.waiting("test")] == [(1, 9)]
    more = replace(bench.journal.start("test"), budget=Budget(evaluations=20))
    events = bench.run(more, ScriptedProposer())
    assert of("judged", events)[0]["rung"] == "preview"
    assert ended(events)["verdict"] is None
    (one, *_) = bench.journal.candidates("test")
    assert (one.rung, one.outcome, one.rounds) == ("sealed", "FAIL", 9)


def test_a_starting_file_of_ones_own_is_the_parent_and_the_last_to_be_gated(bench: Bench) -> None:
    evaluator = bench.evaluator()
    start = bench.begin(stock=False)
    events = bench.run(start, ScriptedProposer(file(2.0, gate="FAIL")), evaluator)
    assert [(job.source == START, job.parent == START, job.rung) for job in evaluator.jobs] == [
        (False, True, "preview"),
        (False, True, "gate"),
        (True, False, "gate"),
        (True, False, "sealed"),
    ]
    assert ended(events)["best"] == 2
    assert "candidate 2 passed all stages, with 1.00x the speed of the stock op" in ended(events)["text"]


def test_a_starting_file_that_was_refused_is_not_asked_about_again(bench: Bench) -> None:
    start = bench.begin(stock=False, source=file(1.0, sealed="FAIL"))
    for queries in (1, 1):
        bench.run(start, ScriptedProposer())
        assert bench.journal.queries(TASK) == queries


def test_the_speed_of_the_starting_file_is_over_the_stock_op_and_stands_in_its_verdict_alone(bench: Bench) -> None:
    start = bench.begin(stock=False, source=file(1.7))
    for _ in range(2):
        events = bench.run(start, ScriptedProposer())
        assert "candidate 1 passed all stages, with 1.70x the speed of the stock op" in ended(events)["text"]
    assert [one.over for one in bench.journal.candidates("test")] == [None]


# --- what a proposer is told


def test_a_proposer_is_told_what_was_tried_and_from_what_to_go_on(bench: Bench) -> None:
    proposer = ScriptedProposer(file(1.5), file(1.2, "FAIL"), file(2.0))
    start = bench.begin(feedback=("the panel takes most",), beam=1)
    bench.journal.add_hint(start.id, "use wider panels")
    events = bench.run(start, proposer, lessons=lambda known: (f"{len(known.tried)} were tried",))
    assert [len(known.tried) for known in proposer.told] == [0, 1, 2, 3]
    last = proposer.told[-1]
    assert [one.number for lane in last.beam for one in lane] == [3]
    assert (last.start, last.feedback, last.hints) == (START, ("the panel takes most",), ("use wider panels",))
    assert last.lessons == ("3 were tried",)
    assert of("hint", events) == [{"text": "use wider panels"}]


def test_a_hint_is_heard_in_the_middle(bench: Bench) -> None:
    proposer = ScriptedProposer(file(1.5), file(1.6))
    start = bench.begin()

    def hint(jobs: object) -> None:
        if len(proposer.told) == 1:
            bench.journal.add_hint(start.id, "less memory")

    events = bench.run(start, proposer, bench.evaluator(before=hint))
    assert [known.hints for known in proposer.told] == [(), ("less memory",), ("less memory",)]
    assert kinds(events).count("hint") == 1


def test_several_are_evaluated_at_once(bench: Bench) -> None:
    requests: list[int] = []
    evaluator = bench.evaluator(slots=2, before=lambda jobs: requests.append(len(jobs)))
    proposer = ScriptedProposer([file(1.1), file(1.2), file(1.3)])
    bench.run(bench.begin(), proposer, evaluator)
    assert requests == [2, 1, 1, 1]
    assert proposer.told[0].wanted == 2
    assert [job.tries for job in evaluator.jobs] == [1, 2, 3, 4, 5]


def test_what_was_tried_is_a_trouble_unless_it_is_looked_at_more_closely(bench: Bench) -> None:
    same = file(1.5)
    answers = [proposed(same), proposed(same), proposed(START), proposed(same, same, rounds=9), proposed(file(1.1))]
    events = bench.run(bench.begin(), ScriptedProposer(*answers))
    assert [one["text"] for one in of("trouble", events)] == [
        "the file of candidate 1 again",
        "the starting file again",
        "the file of candidate 1 again",
    ]
    assert [(one["number"], one["rung"]) for one in of("judged", events)[:3]] == [(1, "preview")] * 2 + [(2, "preview")]
    assert bench.journal.candidates("test")[0].rounds == 9


def test_troubles_of_a_proposer_are_events_and_too_many_are_an_end(bench: Bench) -> None:
    refusal = Proposed(troubles=(("refusal", "I would rather not"),))
    events = bench.run(bench.begin(), ScriptedProposer(refusal, file(2.0), *[refusal] * 9, name="llm"))
    assert len(of("trouble", events)) == 6
    assert ended(events)["end"] == "exhausted"
    assert ended(events)["text"].startswith("5 answers in a row held nothing new: I would rather not; candidate 1")
    assert ended(events)["verdict"] is not None


# --- plateaus and noise


class Sage:
    def __init__(self, *advice: str) -> None:
        self.advice = list(advice)

    def advise(self, known: Known) -> str:
        assert known.plateau
        return self.advice.pop(0)


def test_on_a_plateau_the_adviser_is_asked_once_for_each_stretch_until_something_is_better(bench: Bench) -> None:
    answers = [file(2.0), *MANY[:7], file(3.0), MANY[8]]
    proposer = ScriptedProposer(*answers, name="llm")
    events = bench.run(bench.begin(patience=3), proposer, adviser=Sage("be bold", "be bolder"))
    assert [known.advice for known in proposer.told] == [*[""] * 4, *["be bold"] * 3, *["be bolder"] * 2, "", ""]
    assert [known.plateau for known in proposer.told] == [*[False] * 4, *[True] * 5, False, False]
    assert of("advice", events) == [{"text": "be bold"}, {"text": "be bolder"}]


def test_an_adviser_without_an_answer_is_not_asked_again_at_once(bench: Bench) -> None:
    proposer = ScriptedProposer(file(2.0), *MANY[:6], name="llm")
    events = bench.run(bench.begin(patience=3), proposer, adviser=Sage("", "be bold"))
    assert [known.advice for known in proposer.told] == [*[""] * 7, "be bold"]
    assert of("advice", events) == [{"text": "be bold"}]


def test_with_one_evaluation_left_nothing_is_composed(bench: Bench) -> None:
    small, large = file({"4x8x8": 4.0, "4x64x64": 1.0}), file({"4x8x8": 1.0, "4x64x64": 4.0})
    evaluator = bench.evaluator()
    bench.run(bench.begin(task=TWO_SIZES, budget=Budget(evaluations=3)), ScriptedProposer(small, large), evaluator)
    assert [job.rung for job in evaluator.jobs] == ["preview", "preview", "sealed"]


def test_three_times_the_patience_without_a_better_one_is_an_end(bench: Bench) -> None:
    events = bench.run(bench.begin(patience=3), ScriptedProposer(file(2.0), *MANY))
    assert len(of("proposed", events)) == 1 + 9
    assert ended(events)["text"].startswith("the last 9 candidates brought nothing better; candidate 1 passed")


def test_whoever_goes_on_after_a_plateau_has_more_tried(bench: Bench) -> None:
    start = bench.begin(patience=1)
    bench.run(start, ScriptedProposer(file(2.0), *MANY))
    events = bench.run(start, ScriptedProposer(MANY[50], file(4.0)))
    assert of("better", events) == [{"number": 6, "over": {"low": 3.96, "mid": 4.0, "high": 4.04}}]


def test_it_ends_when_the_gain_that_is_left_is_under_the_noise(bench: Bench) -> None:
    stakes = Stakes(op_ns=40e6, least_ns=4e6, gain_ns=36e6, noise_ns=3e6)
    events = bench.run(bench.begin(stakes=stakes), ScriptedProposer(file(5.0), file(6.0), file(7.0)))
    assert ended(events)["end"] == "noise"
    assert ended(events)["text"].startswith(
        "candidate 2 leaves 2.67 ms of a step to gain at most, and under 3.00 ms nothing could be seen"
    )
    assert ended(events)["best"] == 2


def test_noise_that_hides_the_whole_gain_ends_nothing_that_a_person_asked_for(bench: Bench) -> None:
    stakes = Stakes(op_ns=40e6, least_ns=4e6, gain_ns=36e6, noise_ns=37e6)
    events = bench.run(bench.begin(stakes=stakes), ScriptedProposer(file(5.0), file(6.0), file(7.0)))
    assert ended(events)["end"] == "exhausted"
    assert ended(events)["best"] == 3


def test_a_gain_over_a_slow_starting_file_is_not_taken_for_one_over_the_run(bench: Bench) -> None:
    stakes = Stakes(op_ns=40e6, least_ns=4e6, gain_ns=36e6, noise_ns=3e6)
    events = bench.run(bench.begin(stakes=stakes, stock=False), ScriptedProposer(file(6.0), file(7.0)))
    assert ended(events)["end"] == "exhausted"


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


# --- lanes


def test_the_best_of_each_lane_become_one_file_that_is_gated(bench: Bench) -> None:
    small, large = file({"4x8x8": 4.0, "4x64x64": 1.0}), file({"4x8x8": 1.0, "4x64x64": 4.0})
    evaluator = bench.evaluator()
    events = bench.run(bench.begin(task=TWO_SIZES), ScriptedProposer(small, large, file(1.5)), evaluator)
    *_, both = bench.journal.candidates("test")
    assert both.proposal.changed == "lanes: 1 for 8x8, 2 for 64x64"
    assert is_composed(both.proposal.source)
    assert both.over is not None
    assert both.over.mid == pytest.approx(4.0)
    assert [job.rung for job in evaluator.jobs] == ["preview"] * 4 + ["gate", "sealed"]
    assert ended(events)["best"] == both.number == 4


def test_a_starting_file_of_several_in_one_is_changed_as_any_other(bench: Bench) -> None:
    first = compose([Part(file(1.0), (("float32", (8, 8), (8, 8)),))], file(1.0), 0, 1)
    small, large = (
        f"{first}{file(speeds)}" for speeds in ({"4x8x8": 4.0, "4x64x64": 1.0}, {"4x8x8": 1.0, "4x64x64": 3.0})
    )
    proposer = ScriptedProposer(small, large)
    events = bench.run(bench.begin(task=TWO_SIZES, source=first), proposer)
    assert [[one.number for one in lane] for lane in proposer.told[-1].beam] == [[1, 2], [2, 1]]
    assert len(of("proposed", events)) == 2


def test_where_one_candidate_is_best_everywhere_nothing_is_composed(bench: Bench) -> None:
    events = bench.run(bench.begin(task=TWO_SIZES), ScriptedProposer(file(3.0), file({"4x8x8": 2.0, "4x64x64": 1.0})))
    assert len(of("proposed", events)) == 2
    assert ended(events)["best"] == 1


def test_a_candidate_for_one_lane_is_judged_on_it_alone_and_has_its_place_in_the_whole(bench: Bench) -> None:
    def own(known: Known) -> Proposed:
        return Proposed((replace(proposed(file(4.0)).proposals[0], lane="8x8"),))

    evaluator, proposer = bench.evaluator(), ScriptedProposer(own, file(1.5))
    events = bench.run(bench.begin(task=TWO_SIZES), proposer, evaluator)
    assert [len(job.task.development) for job in evaluator.jobs] == [1, 2, 2, 2, 2]
    assert [[one.number for one in lane] for lane in proposer.told[-1].beam] == [[1, 2], [2]]
    assert bench.journal.candidates("test")[-1].proposal.changed == "lanes: 1 for 8x8, 2 for 64x64"
    assert ended(events)["best"] == 3


def test_a_candidate_for_one_lane_leaves_no_less_to_gain(bench: Bench) -> None:
    def own(known: Known) -> Proposed:
        return Proposed((replace(proposed(file(9.0)).proposals[0], lane="8x8"),))

    stakes = Stakes(op_ns=40e6, least_ns=4e6, gain_ns=36e6, noise_ns=3e6)
    events = bench.run(bench.begin(task=TWO_SIZES, stakes=stakes), ScriptedProposer(own, file(0.9)))
    assert ended(events)["end"] == "exhausted"
    assert [one["number"] for one in of("better", events)] == [3], "both lanes in one file"


def test_lessons_are_of_changes_and_neither_of_the_starting_file_nor_of_several_in_one(bench: Bench) -> None:
    small, large = file({"4x8x8": 4.0, "4x64x64": 1.0}), file({"4x8x8": 1.0, "4x64x64": 3.0})
    start = bench.begin(task=TWO_SIZES, stock=False, source=file(2.0, gate="FAIL"))
    bench.run(start, ScriptedProposer(small, large))
    bench.run(bench.begin(task=TWO_SIZES, stock=False, source=file(2.0)), ScriptedProposer())
    assert len(bench.journal.candidates("test")) == 3
    assert len(bench.journal.candidates("test-2")) == 1
    assert [one.action for one in of_ledger(bench.journal, TWO_SIZES)] == [
        f"has {one.splitlines()[0]}" for one in (small, large)
    ]


def test_a_lesson_names_the_gpu_that_was_not_lost(bench: Bench) -> None:
    on_gpu = replace(TASK, device="cuda")
    bench.run(bench.begin(task=on_gpu), ScriptedProposer(file(1.0, "INFRA"), file(2.0)))
    assert [one.on for one in of_ledger(bench.journal, on_gpu)] == ["GPU"]


# --- invariants

SPEEDS = st.tuples(st.floats(0.5, 4.0), st.sampled_from(["PASS", "PASS", "FAIL", "UNKNOWN", "INFRA"]))


@settings(max_examples=25)
@given(
    made=st.lists(SPEEDS, max_size=8), evaluations=st.integers(1, 9), slots=st.integers(1, 3), beam=st.integers(1, 3)
)
def test_no_budget_is_exceeded_and_no_beam_too_wide(
    made: list[tuple[float, Outcome]], evaluations: int, slots: int, beam: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bench = Bench(tmp_path_factory.mktemp("ledger"))
    answers = [file(speed, outcome, note=str(number)) for number, (speed, outcome) in enumerate(made)]
    proposer, evaluator = ScriptedProposer(*answers), bench.evaluator(slots=slots)
    start = bench.begin(budget=Budget(evaluations=evaluations, seconds=60.0), beam=beam, stock=False)
    events = bench.run(start, proposer, evaluator)
    assert len(evaluator.jobs) <= evaluations
    assert sum(event.kind == "ended" for event in events) == 1
    assert all(len(lane) <= beam for known in proposer.told for lane in known.beam)
    assert bench.journal.spent(start.id)["evaluator"].evaluations == len(evaluator.jobs)
    assert sum(job.rung == "sealed" for job in evaluator.jobs) <= 3
