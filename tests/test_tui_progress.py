"""An optimizer's events as lines."""

from typing import Any

import pytest

from qrprof.planner.gate.records import Interval
from qrprof.planner.optimize.records import Candidate, Event, Proposal
from qrprof.tui.progress import Progress, going_on, json_line


def event(kind: Any, **record: object) -> Event:
    return Event(kind, record, "2026-02-01T09:00:00+00:00")


def judged(number: int, mid: float | None, outcome: str = "PASS", why: str = "") -> Event:
    over = None if mid is None else {"low": mid - 0.1, "mid": mid, "high": mid + 0.1}
    record = {"number": number, "outcome": outcome, "over": over, "why": why, "rung": "preview"}
    return event("judged", **record, seconds=2.0, host="here", device="cpu")


def better(number: int, mid: float) -> Event:
    return event("better", number=number, over={"low": mid - 0.1, "mid": mid, "high": mid + 0.1})


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def progress(lines: list[str]) -> Progress:
    return Progress(lines.append, lambda: "3 evaluations")


def test_a_candidate_is_one_line_with_the_best_and_what_is_left(progress: Progress, lines: list[str]) -> None:
    for one in (
        event("proposed", number=1, sha256="ab", changed="WARPS 4 -> 8"),
        judged(1, 2.0),
        better(1, 2.0),
        event("proposed", number=2, sha256="cd", changed="WARPS 8 -> 16"),
        judged(2, None, "FAIL", "wrong by 7 units"),
        judged(1, 1.5),
    ):
        progress.show(one)
    assert lines == [
        "#1 preview PASS 2.00x (1.90x to 2.10x): WARPS 4 -> 8; best none yet; left 3 evaluations",
        "better: #1 2.00x (1.90x to 2.10x)",
        "#2 preview FAIL: WARPS 8 -> 16 (wrong by 7 units); best #1 2.00x (1.90x to 2.10x); left 3 evaluations",
        "#1 preview PASS 1.50x (1.40x to 1.60x): WARPS 4 -> 8; best #1 1.50x (1.40x to 1.60x); left 3 evaluations",
    ]


def test_a_best_that_is_no_faster_when_timed_again_is_none_and_it_says_so(progress: Progress, lines: list[str]) -> None:
    for one in (event("proposed", number=1, sha256="ab", changed="X"), judged(1, 2.0), better(1, 2.0), judged(1, 0.99)):
        progress.show(one)
    assert lines[-1] == (
        "#1 preview PASS 0.99x (0.89x to 1.09x): X; best none: #1 was no faster when timed again; left 3 evaluations"
    )
    progress.show(better(2, 1.5))
    progress.show(judged(1, 0.98))
    assert "; best #2 1.50x" in lines[-1]


def test_all_else_that_a_person_should_know_is_a_line_and_spend_ends_it(progress: Progress, lines: list[str]) -> None:
    usage = {"seconds": 0.0, "evaluations": 0, "dollars": None, "tokens_in": 900, "tokens_out": 100, "requests": 2}
    for one in (
        event("started", target="aten::mm", task="t", proposer="llm", budget={}),
        event("plan", text="it may cost $2"),
        event("trouble", what="refusal", text="a model\nrefused"),
        event("advice", text="use fewer launches"),
        event("hint", text="mostly zeros"),
        event("paused"),
        event("resumed"),
        event("usage", role="proposer", gpu_seconds=0.0, **usage),
        event("switched", **{"from": "a", "to": "b", "why": "nothing is left"}),
        event("ended", end="budget", text="spent", best=None, verdict=None),
    ):
        progress.show(one)
    assert lines == [
        "plan: it may cost $2",
        "refusal: a model refused",
        "advice: use fewer launches",
        "hint: mostly zeros",
        "paused",
        "resumed",
        "switched from a to b: nothing is left",
        "ended: spent",
        "spent by the proposer: 2 requests, 1,000 tokens, dollars unknown",
    ]


def test_one_that_goes_on_knows_what_was_tried(lines: list[str]) -> None:
    one = Candidate(3, "ab", Proposal("", None, "WARPS 4 -> 8"), "preview", "PASS", Interval(1.9, 2.0, 2.1), "")
    going_on([one], lines.append, lambda: "2 evaluations").show(judged(3, None, "FAIL", "wrong"))
    assert lines == ["#3 preview FAIL: WARPS 4 -> 8 (wrong); best #3 2.00x (1.90x to 2.10x); left 2 evaluations"]


def test_json_has_no_infinity_and_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    json_line(event("better", number=1, over={"low": 1.0, "mid": float("inf"), "high": float("nan")}))
    assert capsys.readouterr().out == (
        '{"schema": 1, "kind": "better", "at": "2026-02-01T09:00:00+00:00", "number": 1, '
        '"over": {"low": 1.0, "mid": null, "high": null}}\n'
    )
