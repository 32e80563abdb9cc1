"""The loop with a model behind a real server: what comes of its answers, good and bad, and what they may cost."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from loopback import KEY, MODEL, Loopback, cuts, garbles, loopback, page, proposes, refuses, says, status
from optimize_scripted import START, TASK, Bench, file

from qrprof.planner.optimize.answer import SCHEMA
from qrprof.planner.optimize.chat import Limits, endpoint, reserved_tokens
from qrprof.planner.optimize.llm import LLM, Adviser
from qrprof.planner.optimize.prompt import build
from qrprof.planner.optimize.records import Budget, Event, Known
from qrprof.profiler.errors import QrprofError

LIMITS = Limits(tokens_out=200, seconds=20.0)
NO_DOLLARS = Budget(dollars=None)


@dataclass
class Studio:
    """An optimization with a scripted model and an evaluator that knows the speeds."""

    server: Loopback
    bench: Bench
    evaluator: Any = field(init=False)

    def __post_init__(self) -> None:
        self.evaluator = self.bench.evaluator()

    def run(self, budget: Budget = NO_DOLLARS, advised: bool = False, **fields: Any) -> list[Event]:
        start = self.bench.begin(proposer="llm", budget=budget, **fields)
        meter = self.bench.meter(start)
        place = endpoint(self.server.environment)
        llm = LLM(place, MODEL, meter, LIMITS, sleep=lambda _: None)
        adviser = Adviser(place, "scripted-adviser", meter, sleep=lambda _: None) if advised else None
        return self.bench.run(start, llm, self.evaluator, meter=meter, adviser=adviser)

    def kept(self) -> bytes:
        """All that is on the disk."""
        return b"".join(path.read_bytes() for path in sorted(self.bench.root.rglob("*")) if path.is_file())


@pytest.fixture
def studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Studio]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with loopback() as server:
        yield Studio(server, Bench(tmp_path))


def test_a_page_in_place_of_a_model_uses_up_no_budget_and_is_what_the_end_names(studio: Studio) -> None:
    studio.server.script += [page()] * 20
    with pytest.raises(QrprofError, match="did not answer in the form of chat completions: check OPENAI_BASE_URL"):
        studio.run(replace(NO_DOLLARS, tokens=100_000))
    assert len(studio.server.asked) == 5
    spent = studio.bench.journal.spent("test")["proposer"]
    assert (spent.requests, spent.tokens_out) == (5, 0)
    assert spent.tokens_in > 0
    assert studio.evaluator.jobs == []


def records(events: list[Event], kind: str) -> list[dict[str, Any]]:
    return [dict(event.record) for event in events if event.kind == kind]


def test_a_better_file_after_answers_of_no_use_a_wrong_file_and_a_slow_one(studio: Studio) -> None:
    studio.server.script += [
        refuses("I will not."),
        says('{"code": "def'),
        proposes(file(9.0, "FAIL", note="keeps answers"), "kept answers"),
        status(500),
        proposes(file(0.5), "went slower"),
        cuts('{"code": '),
        proposes(file(1.5), "went faster"),
        garbles(),
        *[says("I have no more ideas.")] * 10,
    ]
    events = studio.run()
    judged = [(one["number"], one["outcome"]) for one in records(events, "judged") if one["rung"] == "preview"]
    assert judged == [(1, "FAIL"), (2, "PASS"), (3, "PASS")]
    troubles = [one["what"] for one in records(events, "trouble")]
    assert troubles[:3] == ["refusal", "malformed", "malformed"]
    assert set(troubles[3:]) == {"no-code"}
    (ended,) = records(events, "ended")
    assert ended["best"] == 3
    assert ended["verdict"]


def test_a_failure_is_told_to_the_model_in_its_next_prompt(studio: Studio) -> None:
    studio.server.script += [proposes(file(9.0, "FAIL"), "kept answers"), *[says("none")] * 5]
    studio.run()
    first, second = (one.prompt for one in studio.server.asked[:2])
    assert "1. kept answers -> FAIL: wrong on one case" in second
    assert "kept answers" not in first


def test_the_budget_stops_the_loop_to_the_call(studio: Studio) -> None:
    first = reserved_tokens(build(Known(TASK, START)), SCHEMA) + LIMITS.tokens_out
    studio.server.script += [proposes(file(1.5), usage=(900, 100)), proposes(file(1.6), usage=(900, 100))]
    events = studio.run(Budget(dollars=None, tokens=first + 999))
    (ended,) = records(events, "ended")
    assert ended["end"] == "budget"
    assert len(studio.server.asked) == 1, "the prompt has grown, so a second request might exceed it"
    assert ended["best"] == 1, "what was found before is not lost"


def test_without_a_price_and_a_limit_in_tokens_nothing_is_sent(studio: Studio) -> None:
    (ended,) = records(studio.run(Budget(dollars=2.0)), "ended")
    assert ended["end"] == "budget"
    assert studio.server.asked == []


def test_what_was_spent_is_shown_by_role_and_outlives_the_process(studio: Studio) -> None:
    studio.server.script += [
        *[proposes(file(0.9, note=str(n)), usage=(1000, 10)) for n in range(3)],
        says("Use two passes.", usage=(70, 7)),
        proposes(file(1.5), usage=(1000, 10)),
        *[says("none", usage=(1000, 10))] * 5,
    ]
    events = studio.run(advised=True, patience=3)
    assert [one["text"] for one in records(events, "advice")] == ["Use two passes."]
    asked = [one for one in studio.server.asked if one.body["model"] == MODEL]
    assert "Use two passes." in asked[3].prompt
    spent = {one["role"]: one for one in records(events, "usage")}
    assert (spent["adviser"]["tokens_in"], spent["adviser"]["tokens_out"]) == (70, 7)
    assert spent["proposer"]["tokens_in"] == 1000 * len(asked)
    assert spent["proposer"]["dollars"] is None, "the price is not known"
    assert studio.bench.journal.spent("test")["proposer"].requests == len(asked)


def test_no_key_is_in_the_ledger_or_an_event(studio: Studio) -> None:
    other = "hf_abcdefghijklmnop1234"
    studio.server.script += [
        status(418, f"I know {KEY} and {other}"),
        refuses(f"I know {KEY} and {other}"),
        proposes(file(1.5), f"used {KEY} and {other}"),
        *[says(f"{KEY} {other}")] * 5,
    ]
    events = studio.run(feedback=(f"annotation {other}",))
    assert len(records(events, "trouble")) >= 3
    studio.bench.journal.add_hint("test", f"my key is {KEY}, try tiles")
    assert studio.bench.journal.hints("test") == ["my key is [masked], try tiles"]
    for secret in (KEY, other):
        assert secret not in str(records(events, "trouble") + records(events, "proposed") + records(events, "ended"))
        assert secret not in str([one.body for one in studio.server.asked])
    assert KEY.encode() not in studio.kept()
