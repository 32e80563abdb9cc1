"""Optimizations in the ledger: what is kept comes back, and whoever is killed is gone on from."""

import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optimize_scripted import START, TASK, Bench, ScriptedProposer, file

from qrprof.planner.gate.records import Domain, Interval
from qrprof.planner.optimize.journal import Judged, Waiting, hash_of
from qrprof.planner.optimize.records import Budget, Candidate, Event, Job, Proposal, Stakes, Usage
from qrprof.profiler.errors import Exit, QrprofError


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def candidate(number: int, source: str, **fields: object) -> Candidate:
    made = Candidate(number, hash_of(source), Proposal(source, None, "wider"), "preview", "UNKNOWN", None, "")
    return replace(made, **fields)  # type: ignore[arg-type]


# --- what is kept


def test_what_was_asked_for_comes_back_whole(bench: Bench) -> None:
    start = bench.begin(
        task=replace(TASK, domain=Domain(scales=(1.0, float("inf")))),
        budget=Budget(seconds=None, tokens=5),
        stakes=Stakes(4.0, 1.0, 3.0, None),
        feedback=("panels",),
        plan={"text": "mm", "gain": {"low": 1.0}},
        run_id="20260131-120000-train",
    )
    assert bench.journal.start("test") == start
    assert bench.journal.start("te") == start


def test_an_id_that_is_taken_gets_a_number(bench: Bench) -> None:
    assert [bench.begin().id for _ in range(3)] == ["test", "test-2", "test-3"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [("nope", "'nope' is unknown; there are two-a, two-b"), ("two", "'two' is the beginning of several")],
)
def test_an_id_that_names_no_one_optimization_is_refused(bench: Bench, name: str, problem: str) -> None:
    for one in ("two-a", "two-b"):
        bench.begin(id=one)
    with pytest.raises(QrprofError, match=problem) as caught:
        bench.journal.start(name)
    assert caught.value.exit_code == Exit.USAGE


def test_a_candidate_is_there_once_it_was_judged_and_until_then_it_waits(bench: Bench) -> None:
    start, journal = bench.begin(), bench.journal
    waiting = [Waiting(candidate(1, "one"), "preview", 3), Waiting(candidate(2, "two"), "preview", 3)]
    journal.await_all(start, waiting, [])
    assert journal.candidates("test") == []
    assert journal.waiting("test") == waiting
    known = candidate(2, "two", outcome="PASS", over=Interval(1.0, 2.0, float("inf")), cases={"8x8": Interval(1, 2, 3)})
    event = Event("judged", {"number": 2}, journal.stamp())
    journal.judge(start, Judged(known, "preview", 3, "PASS", None), [event])
    assert journal.candidates("test") == [known]
    assert journal.waiting("test") == waiting[:1]
    assert journal.events("test") == [event]


def test_equal_files_are_kept_once(bench: Bench) -> None:
    for _ in range(2):
        start = bench.begin()
        bench.journal.await_all(start, [Waiting(candidate(1, "the same"), "preview", 3)], [])
    with bench.connect() as connection:
        texts = [row["text"] for row in connection.execute("SELECT text FROM sources ORDER BY text")]
    assert texts == sorted([START, "the same"])


def test_what_is_spent_is_kept_by_role(bench: Bench) -> None:
    start, journal = bench.begin(), bench.journal
    assert journal.spent("test") == {}
    spent = {"proposer": Usage(dollars=None, tokens_in=3), "evaluator": Usage(seconds=1.5, evaluations=2)}
    journal.keep_spent(start.id, spent)  # type: ignore[arg-type]
    assert journal.spent("test") == spent


def test_tries_of_a_task_are_those_of_all_optimizations(bench: Bench) -> None:
    assert bench.journal.tries(TASK) == 0
    bench.run(bench.begin(), ScriptedProposer(file(2.0), file(1.0, "INFRA")))
    assert bench.journal.tries(TASK) == 3  # a preview, the gate twice
    bench.run(bench.begin(), ScriptedProposer(file(0.5)))
    assert bench.journal.tries(TASK) == 4
    assert bench.journal.tries(replace(TASK, id="another")) == 0
    assert bench.journal.queries(TASK) == 1


def test_hints_are_kept_in_their_order(bench: Bench) -> None:
    start = bench.begin()
    for text in ("first", "then"):
        bench.journal.add_hint(start.id, text)
    assert bench.journal.hints("test") == ["first", "then"]


def test_a_broken_row_is_told_of(bench: Bench) -> None:
    bench.begin()
    with bench.connect() as connection:
        connection.execute("UPDATE optimizations SET record = '{}'")
    with pytest.raises(QrprofError, match="the ledger holds a broken row of an optimization"):
        bench.journal.start("test")


# --- going on

ANSWERS = [file(1.5), [file(2.0), file(1.1, "FAIL")], file(3.0, gate="FAIL"), [file(1.2), file(2.5)], file(2.4)]
ENDLESS = Budget(None, None, None)


class Killed(BaseException):
    """As if the process had been."""


def outline(bench: Bench) -> list[tuple[int, str, str, float | None]]:
    found = bench.journal.candidates("test")
    return [(one.number, one.proposal.source, one.outcome, one.over.mid if one.over else None) for one in found]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    bench = Bench(tmp_path_factory.mktemp("undisturbed"))
    bench.run(bench.begin(budget=ENDLESS), ScriptedProposer(*ANSWERS))
    return bench


@settings(max_examples=6)
@given(cuts=st.lists(st.integers(1, 9), max_size=4), slots=st.integers(1, 2))
def test_one_that_goes_on_ends_with_the_same_candidates(
    cuts: Sequence[int], slots: int, undisturbed: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each time it is cut off in the middle of an evaluation, whose result is lost."""
    bench = Bench(tmp_path_factory.mktemp("disturbed"))
    bench.begin(budget=ENDLESS)
    submitted = 0
    for cut in (*cuts, None):
        left = cut

        def die(jobs: Sequence[Job]) -> None:
            nonlocal left, submitted
            submitted += len(jobs)
            left = None if left is None else left - 1
            if left == 0:
                raise Killed

        evaluator = bench.evaluator(slots=slots, before=die)
        try:
            bench.run(bench.journal.start("test"), ScriptedProposer(*ANSWERS), evaluator)
        except Killed:
            continue
    assert outline(bench) == outline(undisturbed)
    assert bench.journal.spent("test")["evaluator"].evaluations == submitted
    numbers = [event.record["number"] for event in bench.journal.events("test") if event.kind == "proposed"]
    assert numbers == list(range(1, len(outline(bench)) + 1))


def test_two_processes_do_not_go_on_with_the_same_one(bench: Bench) -> None:
    start = bench.begin()
    with bench.journal.alone("test"):
        with pytest.raises(QrprofError, match="test goes on in another process") as caught:
            bench.run(start, ScriptedProposer(file(2.0)))
        bench.run(bench.begin(), ScriptedProposer())
    assert caught.value.exit_code == Exit.USAGE
    assert bench.run(start, ScriptedProposer(file(2.0)))[-1].kind == "ended"


# Goes on with the optimization of a folder, and says each event. An evaluation takes a moment.
GOING_ON = """\
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from optimize_scripted import Bench, ScriptedProposer
from qrprof.planner.optimize.loop import optimize

bench = Bench(Path.cwd())
start = bench.journal.start("test")
proposer = ScriptedProposer(*eval(sys.argv[2]))
evaluator = bench.evaluator(before=lambda jobs: time.sleep(0.02))
for event in optimize(start, proposer, evaluator, bench.journal, bench.meter(start)):
    print(event.kind, flush=True)
"""


def went_on(root: Path, kill_after: int | None, moment_s: float = 0.0) -> int:
    """Go on in a process, which is killed a moment after so many events; its exit code."""
    command = [sys.executable, "-c", GOING_ON, str(Path(__file__).parent), repr(ANSWERS)]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        for seen, _ in enumerate(process.stdout, 1):
            if seen == kill_after:
                try:
                    return process.wait(moment_s)
                except subprocess.TimeoutExpired:
                    break
    finally:
        process.kill()
        process.stdout.close()
        code = process.wait()
    return code


@pytest.mark.slow
def test_killed_at_any_moment_no_more_than_the_running_evaluation_is_lost(bench: Bench, undisturbed: Bench) -> None:
    rng = random.Random(0)
    bench.begin(budget=ENDLESS)
    kills = 0
    while went_on(bench.root, rng.randint(1, 8), rng.uniform(0, 0.04)) == -signal.SIGKILL:
        kills += 1
        judged = [event for event in bench.journal.events("test") if event.kind == "judged"]
        spent = bench.journal.spent("test").get("evaluator", Usage())
        assert 0 <= spent.evaluations - len(judged) <= kills
        assert kills < 40
    assert went_on(bench.root, None) == 0
    assert kills > 0
    assert outline(bench) == outline(undisturbed)
    assert bench.journal.waiting("test") == []
    assert bench.journal.events("test")[-1].kind == "ended"
