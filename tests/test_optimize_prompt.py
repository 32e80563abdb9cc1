"""What a model is told, what it is not, and how long that may get."""

import re
from dataclasses import replace
from typing import Any

import pytest
from gate_tasks import ADDMM, LAYER_NORM, SOFTMAX, case, task
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.gate.qr_task import built_in
from qrprof.planner.gate.records import ArgSpec, Interval, TaskCase
from qrprof.planner.optimize.lanes import split
from qrprof.planner.optimize.prompt import LIMIT, build, focus_of, for_adviser
from qrprof.planner.optimize.records import Candidate, Known, Proposal

START = "def candidate(self, dim, half_to_float):\n    return start(self)\n"
SECRETS = ("sk-abcdefghij0123456789", "hf_abcdefghijklmnop1234", "password=correct-horse", "Bearer abc123def456ghi7")


def tried(number: int, changed: str = "wider", outcome: Any = "FAIL", why: str = "wrong", lane: str = "") -> Candidate:
    proposal = Proposal(f"def candidate(*args):\n    return made_by({number})\n", None, changed)
    over = Interval(1.0, 1.0 + number / 10, 2.0) if outcome == "PASS" else None
    return Candidate(number, f"{number:064x}", proposal, "preview", outcome, over, why, lane=lane)


def asked(known: Known, turn: int = 0, note: str = "") -> str:
    system, user = build(known, turn, note)
    assert (system["role"], user["role"]) == ("system", "user")
    return f"{system['content']}\n{user['content']}"


def test_the_proposer_is_told_the_calls_the_parent_and_what_is_known() -> None:
    known = Known(
        SOFTMAX,
        START,
        tried=(tried(1, "exp in place", why="an output differs by 3 units"),),
        hints=("try one pass",),
        feedback=("it takes 3.2 ms of a step",),
        lessons=("short rows -> one warp a row -> 2x",),
    )
    text = asked(known)
    assert "Op: aten::_softmax on a CPU" in text
    assert "candidate(float32[16, 33], 1, False): 100.0 % of the time" in text
    assert START in text
    assert "1. exp in place -> FAIL: an output differs by 3 units" in text
    for told in ("try one pass", "it takes 3.2 ms", "one warp a row"):
        assert told in text


def test_the_contract_says_what_the_gate_asks_for() -> None:
    text = asked(Known(SOFTMAX, START))
    for rule in ("shape, dtype, strides", "float64", "no state between calls", "KERNELS", "TUNABLES", "torch, triton"):
        assert rule in text


def test_calls_are_shown_in_the_order_of_their_arguments() -> None:
    assert "candidate(float32[16, 40], (40,), float32[40], float32[40], 1e-05)" in asked(Known(LAYER_NORM, START))
    assert "candidate(float32[8], float32[12, 64], float32[64, 8], 1, 1)" in asked(Known(ADDMM, START))


def test_strides_and_the_bound_of_indices_are_told() -> None:
    specs = (ArgSpec((4, 8), "float32", (1, 4)), ArgSpec((3,), "int64", below=4))
    text = asked(Known(task("embedding", TaskCase("one", 1.0, specs)), START))
    assert "candidate(float32[4, 8] strides [1, 4], int64[3] of indices below 4)" in text


@pytest.mark.parametrize("messages", [build, for_adviser])
def test_nothing_is_told_of_how_answers_are_judged(messages: Any) -> None:
    task = built_in("small", "geqrf", "cpu")
    held = case((8, 8), structure="nearrank", scale=123.5, samples=("run.pt#a",), held=("run.pt#secret",))
    known = Known(
        replace(task, development=(*task.development, held)),
        START,
        tried=(tried(1, why="right for the numbers of seed 1234 and wrong for 3 private seeds"),),
    )
    text = "\n".join(message["content"] for message in messages(known)).lower()
    for hidden in ("holdout", "held", "toleranc", "secret", "run.pt", "123.5", "nearrank", "mixed 2", "1234", "32.0"):
        assert hidden not in text


# --- parents


LANES = task("_softmax", case((16, 33), plain=(1, False)), case((4096, 512), plain=(1, False)))
SMALL, LARGE = (lane.name for lane in split(LANES))


def test_each_request_takes_another_parent_the_best_of_each_lane_first() -> None:
    one, two, three = (tried(number, outcome="PASS") for number in (1, 2, 3))
    known = Known(LANES, START, beam=((one, two), (three, one)))
    assert [focus_of(known, turn) for turn in range(4)] == [(one, ""), (three, ""), (two, ""), (one, "")]
    assert "made_by(3)" in asked(known, turn=1)


def test_on_a_plateau_a_file_is_asked_for_one_lane_alone() -> None:
    one, two = tried(1, outcome="PASS"), tried(2, outcome="PASS")
    known = Known(LANES, START, beam=((one,), (two,)), plateau=True)
    assert [focus_of(known, turn) for turn in range(2)] == [(two, LARGE), (one, SMALL)]
    text = asked(known)
    assert "float32[4096, 512], 1, False): 100.0 %" in text
    assert "float32[16, 33]" not in text
    assert "For these calls alone" in text


def test_a_file_for_one_lane_stays_one() -> None:
    known = Known(LANES, START, beam=((tried(1, outcome="PASS", lane=SMALL),), ()))
    assert focus_of(known, 0).lane == SMALL
    assert f"try 1, for {SMALL}" in asked(known)


def test_the_start_is_the_first_parent_until_something_is_faster() -> None:
    assert focus_of(Known(SOFTMAX, START), 5) == (None, "")
    slower = tried(1)
    known = Known(SOFTMAX, START, beam=((slower,),))
    assert [focus_of(known, turn) for turn in range(2)] == [(None, ""), (slower, "")]
    assert START in for_adviser(known)[1]["content"]


def test_on_a_plateau_another_parent_is_taken_and_something_bolder_asked_for() -> None:
    beam = ((tried(1, outcome="PASS"), tried(2, outcome="PASS")),)
    usual, plateau = (
        Known(SOFTMAX, START, beam=beam),
        Known(SOFTMAX, START, beam=beam, plateau=True, advice="Use tiles."),
    )
    assert "made_by(1)" in asked(usual)
    assert "Be bold" not in asked(usual)
    assert "made_by(2)" in asked(plateau)
    assert "Be bold" in asked(plateau)
    assert "Use tiles." in asked(plateau)


def test_the_adviser_sees_the_best_and_writes_no_code() -> None:
    beam = ((tried(1, outcome="PASS"), tried(2, outcome="PASS")),)
    system, user = for_adviser(Known(SOFTMAX, START, beam=beam, plateau=True))
    assert "no code" in system["content"]
    assert "made_by(1)" in user["content"]
    assert "1.10x as fast" in user["content"]
    assert "JSON" not in user["content"]


def test_why_the_last_answer_was_of_no_use_is_told() -> None:
    assert "could not be used\nhunk 2 does not fit" in asked(Known(SOFTMAX, START), note="hunk 2 does not fit")
    assert "could not be used" not in asked(Known(SOFTMAX, START))


WRONG = "output 0: 3.1 at (0, 2) is 2.9 in float64: off by 300 units of rounding, the stock kernel by 2, allowed are 32"


@pytest.mark.parametrize(
    ("finding", "told"),
    [
        (f"{WRONG}; 5 of 8 numbers miss", "off by 300 units of rounding, the stock kernel by 2; 5 of 8 numbers miss"),
        ("factor 25.1 > 20 (3 of 8 matrices, at 2)", "factor 25.1 (3 of 8 matrices, at 2)"),
        ("orthogonality 2.5e+03 > 1.02e+02; finite", "orthogonality 2.5e+03; finite"),
        ("right for the numbers of seed 0 and wrong for 2", "right for the numbers of one seed and wrong for 2"),
        ("it printed: /home/jane/train.py, line 3", "it printed: /home/[user]/train.py, line 3"),
        ("it raised\x1b[2J", "it raised [2J"),
    ],
)
def test_neither_a_seed_nor_what_is_allowed_nor_a_name_is_told(finding: str, told: str) -> None:
    known = Known(SOFTMAX, START, tried=(tried(1, why=finding),), lessons=(f"softmax -> wider -> failed: {finding}",))
    assert asked(known).count(told) == 2


# --- bounds


def test_the_oldest_history_goes_first() -> None:
    known = Known(SOFTMAX, START, tried=tuple(tried(n, changed=f"{n} " + "word " * 50) for n in range(1, 2000)))
    text = asked(known)
    assert len(text) <= LIMIT + len(START) + 100
    numbers = [int(found) for found in re.findall(r"^(\d+)\. ", text, re.MULTILINE)]
    assert numbers == list(range(numbers[0], 2000))
    assert len(numbers) > 50


def test_of_a_long_hint_the_beginning_is_told() -> None:
    text = asked(Known(SOFTMAX, START, hints=("use tiles " + "word " * 1000,)))
    assert "## Hints of the person you work for\nuse tiles word" in text


def test_a_parent_is_whole_whatever_its_length() -> None:
    start = START + "# a long line of a long file\n" * 4000
    text = asked(Known(SOFTMAX, start, tried=(tried(1),)))
    assert start in text
    assert "1. wider -> FAIL: wrong" in text, "and takes no room from the rest"
    assert "a diff of it is asked for" in text
    assert "a diff of it is asked for" not in asked(Known(SOFTMAX, START))


@given(st.lists(st.text(max_size=3000), max_size=30), st.text(max_size=5000))
def test_everything_but_the_parent_is_bounded(texts: list[str], advice: str) -> None:
    known = Known(
        SOFTMAX,
        START,
        tried=tuple(tried(n, changed=text, why=text) for n, text in enumerate(texts)),
        hints=tuple(texts),
        feedback=tuple(texts),
        lessons=tuple(texts),
        advice=advice,
        plateau=True,
    )
    for messages in (build(known), for_adviser(known)):
        assert sum(len(message["content"]) for message in messages) <= LIMIT + len(START) + 100


def test_lessons_take_a_few_hundred_tokens_at_most() -> None:
    known = Known(SOFTMAX, START, lessons=tuple(f"lesson {n}: " + "x" * 100 for n in range(100)))
    text = asked(known)
    assert "lesson 0" in text
    assert len(re.findall("lesson \\d", text)) * 110 < 1600


# --- secrets


@pytest.mark.parametrize("secret", SECRETS)
def test_what_looks_like_a_key_is_masked_wherever_it_comes_from(secret: str) -> None:
    hidden = secret.partition("=")[2] or secret.rpartition(" ")[2]
    known = Known(
        SOFTMAX,
        f"# {secret}\n{START}",
        tried=(tried(1, changed=f"used {secret}", why=f"raised {secret}"),),
        hints=(f"the key is {secret}",),
        feedback=(f"annotation {secret}",),
        lessons=(f"{secret} helps",),
        advice=f"use {secret}",
    )
    for messages in (build(known, note=secret), for_adviser(known)):
        assert hidden not in str(messages)
        assert START in messages[1]["content"], "the lines around it stay"
