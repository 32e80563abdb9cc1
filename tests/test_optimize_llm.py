"""A model as proposer and adviser, against a real server that answers by a script."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import pytest
from gate_tasks import SOFTMAX, case, task
from loopback import (
    KEY,
    MODEL,
    Loopback,
    Reply,
    cuts,
    drips,
    garbles,
    hangs,
    loopback,
    proposes,
    refuses,
    says,
    status,
)

from qrprof.planner.gate.records import Interval
from qrprof.planner.optimize.budget import Meter
from qrprof.planner.optimize.chat import Limits, endpoint, reserved_tokens
from qrprof.planner.optimize.lanes import split
from qrprof.planner.optimize.llm import LLM, Adviser
from qrprof.planner.optimize.prompt import build
from qrprof.planner.optimize.records import Budget, BudgetSpent, Candidate, Known, Proposal
from qrprof.profiler.errors import QrprofError

START = "def candidate(self, dim, half_to_float):\n    return self.softmax(dim)\n"
BETTER = "WIDTH = 32\nTUNABLES = {'WIDTH': (16, 32)}\n\n\n" + START
KNOWN = Known(SOFTMAX, START)
LIMITS = Limits(tokens_out=100, seconds=20.0)


@dataclass
class Work:
    """A proposer and an adviser at a scripted server."""

    server: Loopback
    budget: Budget
    limits: Limits = LIMITS

    def __post_init__(self) -> None:
        self.waits: list[float] = []
        self.meter = Meter(self.budget, lambda: 0.0)
        place = endpoint(self.server.environment)
        self.llm = LLM(place, MODEL, self.meter, self.limits, sleep=self.waits.append)
        self.adviser = Adviser(place, "scripted-adviser", self.meter, sleep=self.waits.append)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with loopback() as double:
        yield double


def work(server: Loopback, *replies: Reply, **limits: Any) -> Work:
    server.script += replies
    return Work(server, Budget(dollars=None), replace(LIMITS, **limits))


def source(number: int) -> str:
    return f"# {number}\n{START}"


def judged(number: int, text: str) -> Candidate:
    over = Interval(1.0, 1.1, 1.2)
    return Candidate(number, sha256(text.encode()).hexdigest(), Proposal(text, None, "x"), "preview", "PASS", over, "")


# --- proposals


def test_a_proposal_says_what_was_changed_from_which_file(server: Loopback) -> None:
    parent = judged(1, source(1))
    found = work(server, proposes(BETTER, "one pass")).llm.propose(replace(KNOWN, beam=((parent,),), tried=(parent,)))
    (proposal,) = found.proposals
    assert proposal == Proposal(BETTER, parent.sha256, "one pass", "less time in the loop", {"WIDTH": 32})
    assert (found.troubles, found.done) == ((), None)


def test_the_first_is_made_from_the_start(server: Loopback) -> None:
    (proposal,) = work(server, proposes(source(1))).llm.propose(KNOWN).proposals
    assert proposal.parent is None
    assert START in server.asked[0].prompt


@pytest.mark.parametrize("odd", ["TUNABLES = {[1]: (1, 2)}\n", "TUNABLES = {'W': (1, 2)}\nW = {1, 2}\n"])
def test_tunables_that_are_not_sound_are_no_settings(server: Loopback, odd: str) -> None:
    (proposal,) = work(server, proposes(odd + START)).llm.propose(KNOWN).proposals
    assert (proposal.source, proposal.settings) == (odd + START, {})


def test_as_many_are_asked_for_as_can_be_evaluated_each_from_another_parent(server: Loopback) -> None:
    beam = (judged(1, source(1)), judged(2, source(2)))
    known = replace(KNOWN, beam=(beam,), tried=beam, wanted=2)
    found = work(server, proposes(source(3)), proposes(source(4))).llm.propose(known)
    assert [one.source for one in found.proposals] == [source(3), source(4)]
    assert [one.parent for one in found.proposals] == [beam[0].sha256, beam[1].sha256]


def test_a_diff_is_one_of_the_parent_that_was_shown(server: Loopback) -> None:
    diff = "@@ @@\n def candidate(self, dim, half_to_float):\n-    return self.softmax(dim)\n+    return self.exp()\n"
    (proposal,) = work(server, says(f"```diff\n{diff}```")).llm.propose(KNOWN).proposals
    assert proposal.source == START.replace("softmax(dim)", "exp()")


def test_what_was_tried_before_is_no_proposal(server: Loopback) -> None:
    again = work(server, proposes(START), proposes(source(1)), proposes(source(2)), proposes(source(2))).llm
    known = replace(KNOWN, tried=(judged(1, source(1)),))
    assert again.propose(known).troubles[0][0] == "repeated"
    assert again.propose(known).troubles[0][0] == "repeated"
    both = again.propose(replace(known, wanted=2))
    assert [one.source for one in both.proposals] == [source(2)]
    assert both.troubles[0][0] == "repeated"


def test_on_a_plateau_a_proposal_may_be_for_one_lane(server: Loopback) -> None:
    lanes = task("_softmax", case((16, 33), plain=(1, False)), case((4096, 512), plain=(1, False)))
    one, two = judged(1, source(1)), judged(2, source(2))
    known = Known(lanes, START, beam=((one,), (two,)), tried=(one, two), plateau=True)
    (proposal,) = work(server, proposes(source(3))).llm.propose(known).proposals
    assert (proposal.parent, proposal.lane) == (two.sha256, split(lanes)[1].name)


def test_bolder_on_a_plateau(server: Loopback) -> None:
    llm = work(server, proposes(source(1)), proposes(source(2))).llm
    llm.propose(KNOWN)
    llm.propose(replace(KNOWN, plateau=True))
    usual, bold = (one.body["temperature"] for one in server.asked)
    assert bold > usual


# --- troubles


@pytest.mark.parametrize(
    ("reply", "trouble"),
    [
        (refuses("I will not write that."), "refusal"),
        (says('{"code": "def candi', finish="length"), "truncated"),
        (says(""), "empty"),
        (says('{"changed": "it", "code": "def'), "malformed"),
        (says("Use wider tiles."), "no-code"),
        (garbles(), "malformed"),
        (status(418), "http"),
    ],
)
def test_an_answer_that_is_none_is_a_trouble_and_the_next_one_counts(
    server: Loopback, reply: Reply, trouble: str
) -> None:
    llm = work(server, reply, proposes(source(1))).llm
    failed = llm.propose(KNOWN)
    assert [name for name, _ in failed.troubles] == [trouble]
    assert (failed.proposals, failed.done) == ((), None)
    assert llm.propose(KNOWN).proposals[0].source == source(1)


@pytest.mark.parametrize("reply", [hangs(), hangs('{"code"'), drips()])
def test_a_hang_ends_as_a_trouble(server: Loopback, reply: Reply) -> None:
    assert work(server, reply, seconds=0.5).llm.propose(KNOWN).troubles[0][0] == "timeout"


@pytest.mark.parametrize("reply", [status(429, retry_after="0"), status(500), cuts('{"code": "def')])
def test_what_passes_is_no_trouble(server: Loopback, reply: Reply) -> None:
    found = work(server, reply, reply, proposes(source(1))).llm.propose(KNOWN)
    assert (len(found.proposals), found.troubles) == (1, ())


def test_one_of_two_that_fails_does_not_take_the_other_along(server: Loopback) -> None:
    found = work(server, refuses("no"), proposes(source(1))).llm.propose(replace(KNOWN, wanted=2))
    assert (len(found.proposals), len(found.troubles)) == (1, 1)


def test_the_model_is_told_why_its_answer_could_not_be_used(server: Loopback) -> None:
    llm = work(server, says('{"code": "def candidate(:"}'), proposes(source(1)), proposes(source(2))).llm
    for _ in range(3):
        llm.propose(KNOWN)
    first, second, third = (one.prompt for one in server.asked)
    assert "could not be used\nthe model's code does not parse" in second
    assert "could not be used" not in first + third


def test_a_key_that_is_not_accepted_is_for_a_person_to_mend(server: Loopback) -> None:
    with pytest.raises(QrprofError, match="OPENAI_API_KEY"):
        work(server, status(401, f"Incorrect API key provided: {KEY}")).llm.propose(KNOWN)


# --- the adviser, and what both spend


def test_the_adviser_answers_in_prose_and_is_paid_for_apart(server: Loopback) -> None:
    both = work(server, says("Use two passes.", usage=(70, 7)), proposes(source(1), usage=(100, 50)))
    assert both.adviser.advise(KNOWN) == "Use two passes."
    both.llm.propose(KNOWN)
    adviser, proposer = server.asked
    assert (adviser.body["model"], proposer.body["model"]) == ("scripted-adviser", MODEL)
    assert "response_format" not in adviser.body
    spent = both.meter.spent()
    assert (spent["adviser"].tokens_in, spent["adviser"].tokens_out) == (70, 7)
    assert (spent["proposer"].tokens_in, spent["proposer"].tokens_out) == (100, 50)


def test_advice_is_printable_and_holds_no_secret(server: Loopback) -> None:
    both = work(server, says("Use \x1b[31mtwo\npasses\ud83d, not hf_abcdefghijklmnop1234."))
    assert both.adviser.advise(KNOWN) == "Use  [31mtwo passes , not [masked]."


def test_an_adviser_that_fails_has_nothing_to_say(server: Loopback) -> None:
    assert work(server, refuses("no")).adviser.advise(KNOWN) == ""


def test_the_request_that_might_exceed_the_budget_is_not_sent(server: Loopback) -> None:
    from qrprof.planner.optimize.answer import SCHEMA

    each = reserved_tokens(build(KNOWN), SCHEMA) + LIMITS.tokens_out
    server.script += [proposes(source(1), usage=(40, 20)), proposes(source(2), usage=(40, 20))]
    limited = Work(server, Budget(dollars=None, tokens=2 * 60 + each - 1))
    for _ in range(2):
        assert limited.llm.propose(KNOWN).proposals
    with pytest.raises(BudgetSpent):
        limited.llm.propose(KNOWN)
    assert len(server.asked) == 2


def test_what_was_proposed_before_the_budget_was_spent_is_not_lost(server: Loopback) -> None:
    from qrprof.planner.optimize.answer import SCHEMA

    each = reserved_tokens(build(KNOWN), SCHEMA) + LIMITS.tokens_out
    server.script.append(proposes(source(1), usage=(40, 20)))
    found = Work(server, Budget(dollars=None, tokens=each)).llm.propose(replace(KNOWN, wanted=3))
    assert len(found.proposals) == 1
    assert [name for name, _ in found.troubles] == ["budget"]


# --- keys


def test_no_key_is_in_a_request_a_proposal_or_a_trouble(server: Loopback) -> None:
    other = "hf_abcdefghijklmnop1234"
    leaky = replace(
        KNOWN, start=f"# {KEY} {other}\n{START}", hints=(f"the key is {KEY}", other), feedback=(KEY,), lessons=(other,)
    )
    echo = json.dumps({"changed": f"used {other}", "expects": other, "code": BETTER})
    both = work(server, status(500, KEY), status(418, f"{KEY} {other}"), says("no"), says(echo), says(other))
    troubles = [both.llm.propose(leaky).troubles for _ in range(2)]
    (proposal,) = both.llm.propose(leaky).proposals
    both.adviser.advise(leaky)
    for seen in (*(one.body for one in server.asked), troubles, proposal, vars(both.llm), vars(both.llm.chat)):
        assert KEY not in str(seen)
        assert other not in str(seen)
    assert all(one.headers["authorization"] == f"Bearer {KEY}" for one in server.asked)
