"""Questions to a real server on the loopback address: what is sent, tried again, counted and given up."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event, Timer
from typing import Any

import pytest
from loopback import (
    KEY,
    MODEL,
    Handler,
    Loopback,
    Reply,
    cuts,
    drips,
    garbles,
    hangs,
    loopback,
    page,
    refuses,
    says,
    status,
)

from qrprof.planner.optimize.answer import SCHEMA
from qrprof.planner.optimize.budget import Meter
from qrprof.planner.optimize.chat import Chat, Failed, Limits, endpoint, reserved_tokens
from qrprof.planner.optimize.prices import Price
from qrprof.planner.optimize.records import Budget, BudgetSpent, Usage
from qrprof.planner.optimize.stream import wait_s
from qrprof.profiler.errors import Exit, QrprofError

MESSAGES = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Answer in JSON: what is faster?"}]
LIMITS = Limits(tokens_out=64, seconds=20.0)
FREE = Budget(dollars=None)


@dataclass
class Talk:
    """A chat with a scripted server; waits are noted, not slept."""

    server: Loopback
    budget: Budget = FREE
    limits: Limits = LIMITS
    waits: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.meter = Meter(self.budget, lambda: 0.0)
        place = endpoint(self.server.environment)
        self.stop = Event()
        self.chat = Chat(place, MODEL, "proposer", self.meter, self.limits, self.stop, self.waits.append)

    def ask(self, schema: Any = SCHEMA) -> str:
        return self.chat.ask(MESSAGES, schema, 0.7)

    def fails(self) -> Failed:
        with pytest.raises(Failed) as failed:
            self.ask()
        return failed.value

    @property
    def spent(self) -> Usage:
        return self.meter.spent()["proposer"]

    @property
    def fields(self) -> list[set[str]]:
        """Names in each request, but for those that all have."""
        return [set(one.body) - {"model", "messages", "stream"} for one in self.server.asked]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with loopback() as double:
        yield double


def script(server: Loopback, *replies: Reply) -> Talk:
    server.script += replies
    return Talk(server)


# --- an answer


def test_an_answer_comes_whole_and_is_counted_as_the_server_counts(server: Loopback) -> None:
    talk = script(server, says('{"code": "x = 1"}', usage=(31, 7)))
    assert talk.ask() == '{"code": "x = 1"}'
    assert (talk.spent.tokens_in, talk.spent.tokens_out, talk.spent.requests) == (31, 7, 1)


def test_a_request_asks_for_the_schema_and_names_its_limit(server: Loopback) -> None:
    talk = script(server, says("{}"))
    talk.ask()
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body["max_completion_tokens"] == 64
    assert asked.body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert asked.body["messages"] == MESSAGES


def test_without_a_schema_no_form_is_asked_for(server: Loopback) -> None:
    talk = script(server, says("Try wider panels."))
    assert talk.ask(schema=None) == "Try wider panels."
    assert "response_format" not in server.asked[0].body


def test_where_the_server_does_not_count_the_prompt_as_reserved_and_the_answer_are(server: Loopback) -> None:
    talk = script(server, says("ten bytes.", usage=None))
    talk.ask()
    assert talk.spent.tokens_in == reserved_tokens(MESSAGES, SCHEMA)
    assert talk.spent.tokens_out == 5


def test_a_question_takes_no_time_that_is_left_for_the_gate(server: Loopback) -> None:
    talk = script(server, says("yes"))
    talk.meter.budget = Budget(seconds=100.0, dollars=None)
    talk.meter.skip(-85.0)
    assert talk.fails().trouble == "timeout"
    assert server.asked == []


def test_where_the_server_does_not_count_what_the_model_thought_is_counted_too(server: Loopback) -> None:
    talk = script(server, says("ten bytes.", usage=None, thinks="twelve bytes"))
    assert talk.ask() == "ten bytes."
    assert talk.spent.tokens_out == 11


def test_half_of_a_surrogate_pair_is_a_character_like_others(server: Loopback) -> None:
    talk = script(server, says("half \ud83d", usage=None))
    assert talk.ask() == "half \ud83d"
    assert talk.spent.tokens_out == 3


@pytest.mark.parametrize("count", ["12", -3, 0, None, 1.5])
def test_a_count_that_is_none_is_not_taken(server: Loopback, count: Any) -> None:
    talk = script(server, says("ten bytes.", usage=(count, count)))
    talk.ask()
    assert (talk.spent.tokens_in, talk.spent.tokens_out) == (reserved_tokens(MESSAGES, SCHEMA), 5)


# --- what is tried again


@pytest.mark.parametrize("code", [408, 409, 429, 500, 502, 503])
def test_what_may_pass_is_tried_again(server: Loopback, code: int) -> None:
    talk = script(server, status(code), status(code), says("yes"))
    assert talk.ask() == "yes"
    assert talk.waits == [1.0, 2.0]
    assert talk.spent.requests == 3
    assert talk.spent.tokens_in == 100, "a refused request costs no tokens"


@pytest.mark.parametrize("code", [504, 524])
def test_what_a_gateway_did_not_wait_for_may_have_been_written_and_keeps_what_was_reserved(
    server: Loopback, code: int
) -> None:
    talk = script(server, status(code), says("yes", usage=(10, 5)))
    assert talk.ask() == "yes"
    assert talk.spent.tokens_in == 10 + reserved_tokens(MESSAGES, SCHEMA)
    assert talk.spent.tokens_out == 5 + LIMITS.tokens_out


def test_the_wait_is_the_one_that_the_server_asks_for(server: Loopback) -> None:
    talk = script(server, status(429, retry_after="7"), status(503, retry_after="0"), says("yes"))
    assert talk.ask() == "yes"
    assert talk.waits == [7.0, 0.0]


def test_a_wait_beyond_the_deadline_is_not_begun(server: Loopback) -> None:
    talk = script(server, status(429, retry_after="3600"))
    failed = talk.fails()
    assert failed.trouble == "http"
    assert "3600 s" in str(failed)
    assert talk.waits == []


def test_after_four_tries_it_is_given_up(server: Loopback) -> None:
    talk = script(server, *[status(500, "overloaded")] * 4)
    failed = talk.fails()
    assert failed.trouble == "http"
    assert "status 500 overloaded" in str(failed)
    assert len(server.asked) == 4


@pytest.mark.parametrize("cleanly", [False, True])
def test_a_cut_stream_is_asked_for_again_and_keeps_what_it_may_have_cost(server: Loopback, cleanly: bool) -> None:
    talk = script(server, cuts('{"code": "def', cleanly), says("whole", usage=(30, 5)))
    assert talk.ask() == "whole"
    assert talk.spent.tokens_out == 64 + 5
    assert talk.spent.tokens_in == reserved_tokens(MESSAGES, SCHEMA) + 30


def test_a_host_that_is_not_there_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with loopback() as gone:
        pass
    talk = Talk(gone)
    failed = talk.fails()
    assert (failed.trouble, "check that it runs, and OPENAI_BASE_URL" in str(failed)) == ("connection", True)
    assert (talk.spent.tokens_in, talk.spent.tokens_out, talk.waits) == (0, 0, [1.0, 2.0, 4.0])


# --- what ends it


@pytest.mark.parametrize("reply", [hangs(), hangs("be"), drips()])
def test_a_deadline_ends_what_hangs_or_drips(server: Loopback, reply: Reply) -> None:
    server.script.append(reply)
    talk = Talk(server, limits=Limits(tokens_out=64, seconds=0.5))
    began = time.monotonic()
    assert talk.fails().trouble == "timeout"
    assert time.monotonic() - began < 20, "the server itself would have held it for 30 s"
    assert (talk.spent.tokens_out, talk.spent.requests) == (64, 1), "what it may have cost stays counted"


def test_the_budgets_time_ends_a_question_too(server: Loopback) -> None:
    server.script.append(hangs())
    talk = Talk(server, Budget(seconds=0.3, dollars=None), Limits(seconds=500.0))
    assert talk.fails().trouble == "timeout"


def test_a_person_ends_a_question_at_once(server: Loopback) -> None:
    talk = script(server, hangs())
    Timer(0.2, talk.stop.set).start()
    failed = talk.fails()
    assert (failed.trouble, "not asked further" in str(failed)) == ("timeout", True)
    assert talk.spent.tokens_out == 64, "what it may have cost stays counted"


@pytest.mark.parametrize(
    "data",
    [
        *("", "{", "42", '{"choices": 3}', '{"choices": [null]}', '{"choices": [{"delta": 1}]}'),
        *('{"choices": [{"delta": {"content": 5}}]}', '{"choices": [{"delta": {"content": ["a"]}}]}'),
        '{"choices": [], "usage": 7}',
    ],
)
def test_a_stream_of_anything_else_ends_as_a_trouble(server: Loopback, data: str) -> None:
    talk = script(server, *[garbles(data)] * 4)
    assert talk.fails().trouble in ("malformed", "connection")


def test_a_stream_that_is_no_json_is_malformed_and_not_asked_for_again(server: Loopback) -> None:
    talk = script(server, garbles())
    assert talk.fails().trouble == "malformed"
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "reply",
    [
        *(
            page(),
            page("{", "application/json"),
            page('{"object": "chat.completion", "choices": []}', "application/json"),
        ),
        *(garbles(), garbles('{"choices": []}'), cuts("", cleanly=True)),
    ],
)
def test_a_host_that_does_not_speak_chat_completions_is_named_and_costs_the_prompt(
    server: Loopback, reply: Reply
) -> None:
    talk = script(server, reply)
    failed = talk.fails()
    assert failed.trouble == "malformed"
    assert "the host did not answer in the form of chat completions: check OPENAI_BASE_URL" in str(failed)
    assert (talk.spent.tokens_in, talk.spent.tokens_out) == (reserved_tokens(MESSAGES, SCHEMA), 0)
    assert len(server.asked) == 1


def test_what_turns_unreadable_after_it_began_keeps_what_it_may_have_cost(server: Loopback) -> None:
    def turns(handler: Handler) -> None:
        handler.stream()
        handler.pieces("half of it")
        handler.event("{")
        handler.done()

    talk = script(server, turns)
    failed = talk.fails()
    assert (failed.trouble, "cannot be read" in str(failed)) == ("malformed", True)
    assert talk.spent.tokens_out == 64


def test_why_nothing_was_answered_is_known_until_something_is(server: Loopback) -> None:
    talk = script(server, *[status(500, "overloaded")] * 4, says(""), page())
    assert talk.chat.unheard == ""
    talk.fails()
    assert "status 500 overloaded" in talk.chat.unheard
    assert talk.fails().trouble == "empty"
    assert talk.chat.unheard == "", "an empty answer is one"
    talk.fails()
    assert talk.chat.unheard == ""


def test_a_request_that_the_deadline_cut_short_hides_no_reason(server: Loopback) -> None:
    server.script += [status(500, "overloaded"), hangs()]
    talk = Talk(server, limits=Limits(tokens_out=64, seconds=2.0))
    assert talk.fails().trouble == "timeout"
    assert "status 500 overloaded" in talk.chat.unheard


def test_an_error_in_the_stream_is_tried_again(server: Loopback) -> None:
    talk = script(server, garbles('{"error": {"message": "overloaded"}}'), says("yes"))
    assert talk.ask() == "yes"
    assert talk.waits == [1.0]


@pytest.mark.parametrize(
    ("reply", "trouble"),
    [
        (refuses("I cannot help with that."), "refusal"),
        (says("", finish="content_filter"), "refusal"),
        (says('{"code": "def candi', finish="length"), "truncated"),
        (says(""), "empty"),
        (says(" \n"), "empty"),
        (status(413, "too long"), "http"),
        (status(307, location="http://127.0.0.1:9/v1"), "http"),
    ],
)
def test_an_answer_that_is_none_has_a_name_and_is_not_asked_for_again(
    server: Loopback, reply: Reply, trouble: str
) -> None:
    talk = script(server, reply)
    assert talk.fails().trouble == trouble
    assert len(server.asked) == 1


def test_an_answer_beyond_the_limit_is_cut_off_here(server: Loopback) -> None:
    """By a server that does not know the limit by either name and says nothing."""
    talk = script(server, says("x" * 7 * 65))
    failed = talk.fails()
    assert failed.trouble == "truncated"
    assert "64 tokens" in str(failed)


@pytest.mark.parametrize("code", [401, 402, 403, 404])
def test_what_a_person_has_to_mend_is_an_error(server: Loopback, code: int) -> None:
    talk = script(server, status(code, f"Incorrect API key provided: {KEY}"))
    with pytest.raises(QrprofError, match=f"status {code}") as error:
        talk.ask()
    assert error.value.exit_code == Exit.NO_DEVICE
    assert KEY not in str(error.value)
    assert "Incorrect API key" in str(error.value)


def test_a_quota_that_is_used_up_is_not_waited_for(server: Loopback) -> None:
    talk = script(server, status(429, "You exceeded your current quota", "insufficient_quota"))
    with pytest.raises(QrprofError, match="pay there, or choose another"):
        talk.ask()
    assert len(server.asked) == 1


# --- what the server does not take


@pytest.mark.parametrize("name", ["max_completion_tokens", "temperature", "stream_options", "json_schema"])
def test_what_the_server_refuses_is_left_out_from_then_on(server: Loopback, name: str) -> None:
    server.refuses = {name}
    talk = script(server, says("yes"), says("again"))
    assert (talk.ask(), talk.ask()) == ("yes", "again")
    assert len(server.asked) == 3, "refused once, then never sent again"
    assert talk.waits == []


def test_the_older_name_of_the_limit_is_tried(server: Loopback) -> None:
    server.refuses = {"max_completion_tokens"}
    talk = script(server, says("yes"))
    talk.ask()
    assert server.asked[-1].body["max_tokens"] == 64


def test_the_answers_form_goes_from_schema_to_object_to_text(server: Loopback) -> None:
    server.refuses = {"json_schema", "json_object"}
    talk = script(server, says("yes"))
    talk.ask()
    forms = [one.body.get("response_format", {}).get("type") for one in server.asked]
    assert forms == ["json_schema", "json_object", None]


def test_a_server_error_that_names_the_form_counts_as_a_refusal(server: Loopback) -> None:
    talk = script(server, status(500, "[{'loc': ('body', 'response_format', 'type')}]"), says("yes"))
    assert talk.ask() == "yes"
    assert server.asked[1].body["response_format"] == {"type": "json_object"}
    assert talk.waits == []


def test_a_server_that_takes_the_plainest_request_alone_is_found_out(server: Loopback) -> None:
    talk = script(server, *[status(400, "Bad request")] * 6, says("yes"))
    assert talk.ask() == "yes"
    assert talk.fields[-2:] == [{"max_tokens"}, set()]


def test_once_a_form_has_worked_a_bad_request_is_of_another_kind(server: Loopback) -> None:
    talk = script(server, says("yes"), status(400, "the prompt is too long"))
    talk.ask()
    failed = talk.fails()
    assert failed.trouble == "http"
    assert "too long" in str(failed)
    assert len(server.asked) == 2


# --- the budget


def test_the_request_that_might_exceed_the_tokens_is_not_sent(server: Loopback) -> None:
    each = reserved_tokens(MESSAGES, SCHEMA) + 64
    server.script += [says("one", usage=(20, 10)), says("two", usage=(20, 10)), says("three", usage=(20, 10))]
    talk = Talk(server, Budget(dollars=None, tokens=2 * 30 + each - 1))
    assert (talk.ask(), talk.ask()) == ("one", "two")
    with pytest.raises(BudgetSpent):
        talk.ask()
    assert len(server.asked) == 2
    with_one_more = Talk(server, Budget(dollars=None, tokens=each))
    assert with_one_more.ask() == "three"


def test_retries_are_reserved_each(server: Loopback) -> None:
    each = reserved_tokens(MESSAGES, SCHEMA) + 64
    server.script += [cuts("half"), says("never asked for")]
    talk = Talk(server, Budget(dollars=None, tokens=2 * each - 1))
    with pytest.raises(BudgetSpent):
        talk.ask()
    assert len(server.asked) == 1


def test_dollars_are_held_by_the_price_of_the_model(server: Loopback) -> None:
    server.script += [says("one", usage=(20, 10)), says("two", usage=(20, 10))]
    price = Price(input=1.0, output=1000.0)
    most = price.dollars(reserved_tokens(MESSAGES, SCHEMA), 64)
    talk = Talk(server, Budget(dollars=most + price.dollars(20, 10) - 1e-9))
    talk.chat.price = price
    assert talk.ask() == "one"
    assert talk.spent.dollars == pytest.approx(0.01002)
    with pytest.raises(BudgetSpent):
        talk.ask()
    assert len(server.asked) == 1


# --- the key


def test_the_key_is_in_one_header_and_nowhere_else(server: Loopback) -> None:
    talk = script(server, status(500, f"who are you, {KEY}?"), status(418, f"no {KEY}"))
    talk.chat.place = endpoint({**server.environment, "OPENAI_API_KEY": "akeyofnoknownform"})
    messages: Sequence[dict[str, str]] = [{"role": "user", "content": "here is akeyofnoknownform, keep it"}]
    with pytest.raises(Failed) as failed:
        talk.chat.ask(messages, None, 0.7)
    assert KEY not in str(failed.value)
    assert failed.value.__cause__ is failed.value.__context__ is None, "no error with the request's headers follows"
    for asked in server.asked:
        assert "akeyofnoknownform" not in str(asked.body)
        assert asked.headers["authorization"] == "Bearer akeyofnoknownform"
    assert "akeyof" not in repr(talk.chat.place)


def test_without_key_and_host_nothing_can_be_asked() -> None:
    with pytest.raises(QrprofError, match="OPENAI_API_KEY") as error:
        endpoint({})
    assert error.value.exit_code == Exit.NO_DEVICE


@pytest.mark.parametrize("key", ["sk-\u00e9t\u00e9", "two\nlines", "a b"])
def test_a_key_that_cannot_be_one_is_said_so_without_it(key: str) -> None:
    with pytest.raises(QrprofError, match="OPENAI_API_KEY") as error:
        endpoint({"OPENAI_API_KEY": key})
    assert key not in str(error.value)


def test_a_host_of_the_users_own_needs_no_key(server: Loopback) -> None:
    server.script.append(says("yes"))
    talk = Talk(server)
    talk.chat.place = endpoint({"OPENAI_BASE_URL": server.url})
    assert talk.ask() == "yes"


@pytest.mark.parametrize("url", ["example.com/v1", "ftp://example.com", "https://", "http://h:port/v1"])
def test_what_is_no_address_is_refused_before_anything_is_asked(url: str) -> None:
    with pytest.raises(QrprofError, match="OPENAI_BASE_URL") as error:
        endpoint({"OPENAI_BASE_URL": url, "OPENAI_API_KEY": KEY})
    assert error.value.exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_a_server_asks_for_seconds_or_names_a_time(asked: dict[str, str], seconds: float | None) -> None:
    assert wait_s(asked) == seconds
