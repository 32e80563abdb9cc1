"""A streamed answer, received in a thread that is left behind at the deadline. Faults come back as plain records.

The openai package's errors hold the request with its headers, so none of them leaves this file.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Event, Thread
from typing import Any, Final, Literal

from qrprof.planner.optimize.records import Trouble

POLL_S: Final = 0.2  # between looks at whether to stop
NOT_SENT: Final = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "ProxyError"})
GATEWAY_TIMEOUTS: Final = frozenset({504, 524})  # behind it the model may write on, and is paid for that
UNFORMED: Final = "the host did not answer in the form of chat completions: check OPENAI_BASE_URL"
Cost = Literal["nothing", "prompt", "reserved"]
SAID: Final = ("content", "refusal", "reasoning_content", "reasoning")  # the last two are not OpenAI's


@dataclass(frozen=True)
class Endpoint:
    """Where models are asked. The key goes to the client and is shown by nothing."""

    url: str
    key: str = field(repr=False)


@dataclass(frozen=True)
class Fault:
    """Why there is no answer. `said` is the server's, as it came."""

    trouble: Trouble  # "http", "connection", "timeout" or "malformed"
    said: str = ""
    status: int | None = None
    code: str = ""  # the server's word for it: "insufficient_quota"
    wait_s: float | None = None  # that the server asks for
    cost: Cost = "reserved"  # what it took at most: where it is not known, all that was reserved


@dataclass
class Received:
    """What has come so far. The thread writes it, and whoever waits reads it once `fault` or `finish` is there."""

    texts: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    finish: str | None = None  # "stop", "length", "content_filter"
    tokens_in: int | None = None  # as the server counts; None: it does not
    tokens_out: int | None = None
    thoughts: list[str] = field(default_factory=list)  # that some servers show, and all count
    pieces: int = 0  # each of at least one token
    formed: bool = False  # something came in the form of chat completions
    fault: Fault | None = None
    abandoned: bool = False

    def take(self, chunk: Any) -> None:
        """Raises what a chunk of another form leads to: the client does not look at what it hands on."""
        for choice in chunk.choices or ():
            self.finish = choice.finish_reason or self.finish
            said = {name: getattr(choice.delta, name, None) or "" for name in SAID}
            self.texts.append("" + said["content"])
            self.refusals.append("" + said["refusal"])
            thought = said["reasoning_content"] or said["reasoning"]
            self.thoughts.append(thought if isinstance(thought, str) else "")
            self.pieces += any(said.values())
            self.formed = True
        if usage := getattr(chunk, "usage", None):
            self.tokens_in, self.tokens_out = counted(usage.prompt_tokens), counted(usage.completion_tokens)
            self.formed = True


def counted(tokens: object) -> int | None:
    """None: the server does not count."""
    return tokens if isinstance(tokens, int) and tokens > 0 else None


def received(place: Endpoint, body: Mapping[str, Any], most: int, until: float, stop: Event) -> Received:
    """The answer to `body`, of at most `most` pieces; `until` is a time of `time.monotonic`, `stop` ends it sooner."""
    into = Received()
    left = max(until - time.monotonic(), 0.0)
    thread = Thread(target=receive, args=(place, body, most, left, into), daemon=True)
    thread.start()
    while thread.is_alive() and not stop.is_set() and (left := until - time.monotonic()) > 0:
        thread.join(min(left, POLL_S))
    if thread.is_alive():
        into.abandoned = True
        return Received(fault=Fault("timeout"))
    return into


def receive(place: Endpoint, body: Mapping[str, Any], most: int, left: float, into: Received) -> None:
    try:
        with client(place, left) as connected, connected.chat.completions.create(**body) as stream:
            for chunk in stream:
                into.take(chunk)
                if into.abandoned:
                    return
                if into.pieces > most:  # a server that does not know the limit's name
                    into.finish = "length"
                    return
        if into.finish is None:
            into.fault = Fault("connection", "the answer was cut off") if into.formed else unformed()
    except Exception as error:  # noqa: BLE001 -- whatever it is, whoever waits for the thread has to be told
        found = fault(error)
        into.fault = unformed() if found.trouble == "malformed" and not into.formed else found


def unformed() -> Fault:
    """What answers is no model, but may pass the prompt on to one: it has come there, and nothing came of it."""
    return Fault("malformed", UNFORMED, cost="prompt")


def client(place: Endpoint, timeout_s: float) -> Any:
    """Without retries, and without redirects: one would take the prompt to a host that nobody agreed to."""
    import openai

    http = openai.DefaultHttpxClient(follow_redirects=False)
    return openai.OpenAI(base_url=place.url, api_key=place.key, timeout=timeout_s, max_retries=0, http_client=http)


def fault(error: Exception) -> Fault:
    import openai

    if isinstance(error, openai.APIStatusError):
        wait = wait_s(error.response.headers)
        message = error.body.get("message") if isinstance(error.body, Mapping) else None
        said = f"{error.param or ''} {message or error.message}".strip()
        cost: Cost = "reserved" if error.status_code in GATEWAY_TIMEOUTS else "nothing"
        return Fault("http", said, error.status_code, error.code or "", wait, cost)
    if isinstance(error, openai.APITimeoutError):
        return Fault("timeout")
    if isinstance(error, openai.APIError) and not isinstance(error, openai.APIConnectionError):
        return Fault("http", error.message)  # sent in the stream, in place of an answer
    if isinstance(error, ValueError | TypeError | AttributeError):
        return Fault("malformed", f"what it sent cannot be read ({type(error).__name__})")
    cause = type(error.__cause__ or error).__name__  # some versions of the client wrap the transport's errors
    if cause in NOT_SENT:
        return Fault(
            "connection", f"it is not reached ({cause}): check that it runs, and OPENAI_BASE_URL", cost="nothing"
        )
    return Fault("connection", f"the connection failed ({cause})")


def wait_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait: a number, or a date."""
    asked = headers.get("retry-after", "")
    if re.fullmatch(r"\d+(\.\d+)?", asked, re.ASCII):
        return float(asked)
    try:
        return max((parsedate_to_datetime(asked) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError):  # TypeError: a date without a zone
        return None
