"""The loop, by scripted parts: what is asked, kept and decided."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optimize_scripted import MANY, START, TASK, Bench, ScriptedProposer, case, ended, file, kinds, of, proposed

from qrprof.planner.gate.evidence import QUERIES, count_holdout, find, listed, spent
from qrprof.planner.gate.records import Outcome
from qrprof.planner.optimize.brief import of_ledger
from qrprof.planner.optimize.compose import Part, compose, is_composed
from qrprof.planner.optimize.journal import Journal, hash_of
from qrprof.planner.optimize.records import Budget, Known, Proposed, Stakes

TWO_SIZES = replace(TASK, development=(case(4, 8, 8, weight=0.5), case(4, 64, 64, weight=0.5)))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


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
    assert ended(events)["text"] == "all answers were given; nothing was faster than the stock op"


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


def test_what_ends_before_the_holdout_has_used_no_query(bench: Bench) -> None:
    evaluator = bench.evaluator(sealed=False)
    bench.run(bench.begin(), ScriptedProposer(file(3.0, sealed="FAIL"), file(2.0, sealed="FAIL")), evaluator)
    assert [job.query for job in evaluator.jobs if job.rung == "sealed"] == [1, 1]
    assert bench.journal.queries(TASK) == 0


def test_a_query_that_was_refused_gives_none_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others used up the queries after it was seen that there were some."""
    source = file(2.0)
    with bench.connect() as connection:
        for _ in range(QUERIES):
            count_holdout(connection, TASK.id, hash_of(source), QUERIES, bench.clock.now())
    monkeypatch.setattr(Journal, "queries", lambda *_: 0)
    evaluator = bench.evaluator()
    bench.run(bench.begin(), ScriptedProposer(source), evaluator)
    assert [job.query for job in evaluator.jobs if job.rung == "sealed"] == [None]
    with bench.connect() as connection:
        assert spent(connection, TASK.id).holdout_queries == QUERIES


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


def test_the_next_one_is_the_best_where_the_best_does_not_pass(bench: Bench) -> None:
    events = bench.run(bench.begin(), ScriptedProposer(file(2.0), file(3.0, gate="FAIL")))
    assert [one["number"] for one in of("better", events)] == [1, 2, 1]
    assert ended(events)["best"] == 1


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
