"""One question to a model behind an OpenAI-compatible endpoint: each try is reserved first, and all end by a deadline.

The client's own retries are off, since each try has to be reserved; its timeout is per read, so the deadline is kept
here (`stream`).
"""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Final

from qrprof.planner.optimize.budget import Meter, for_the_end
from qrprof.planner.optimize.consent import host_of
from qrprof.planner.optimize.prices import lookup
from qrprof.planner.optimize.prompt import Message
from qrprof.planner.optimize.records import Role, Trouble
from qrprof.planner.optimize.stream import Endpoint, Fault, Received, received
from qrprof.planner.optimize.terms import Terms
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.readers.texts import MASK, Masked, clean

OPENAI: Final = "https://api.openai.com/v1"
NO_KEY: Final = "none"  # the client wants one, a host of the user's own may not
KEY: Final = re.compile(r"[!-~]*")  # what a header takes
SHORTEST_KEY: Final = 8  # characters; what is shorter is a word that any text may hold
AROUND: Final = 16  # tokens that a message takes beside its text
AGAIN: Final = frozenset({408, 409, 429})  # and all from 500 on
TO_MEND: Final[Mapping[int, str]] = {
    401: "check OPENAI_API_KEY",
    402: "pay there, or choose another",
    403: "the key may not use it: choose another",
    404: "check --model and OPENAI_BASE_URL",
}
SHOWN: Final = 200  # characters of what a server says


@dataclass(frozen=True)
class Limits:
    """Of one question, all of its tries together."""

    tokens_out: int = 16_384
    seconds: float = 600.0
    tries: int = 4


class Failed(Exception):
    """There is no answer; `str()` says why in one sentence."""

    def __init__(self, trouble: Trouble, why: str) -> None:
        super().__init__(why)
        self.trouble = trouble


def endpoint(environment: Mapping[str, str]) -> Endpoint:
    """By OPENAI_BASE_URL and OPENAI_API_KEY; another host than OpenAI's may need no key.

    Raises QrprofError: exit code 3 where a key is missing or cannot be one, 2 where the address is none.
    """
    url, key = (environment.get(name, "").strip() for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"))
    if not key and not url:
        raise QrprofError(
            "no model can be asked: set OPENAI_API_KEY, or OPENAI_BASE_URL for a host of your own, "
            "or take --proposer search",
            Exit.NO_DEVICE,
        )
    if not KEY.fullmatch(key):
        raise QrprofError("OPENAI_API_KEY holds characters that no key has: copy it anew", Exit.NO_DEVICE)
    host_of(url or OPENAI)
    return Endpoint(url or OPENAI, key or NO_KEY)


def tokens(text: str) -> int:
    """Tokens of a text, rather too many: one takes three bytes of code, or more."""
    return -(-len(text.encode(errors="replace")) // 2)


def reserved_tokens(messages: Sequence[Message], schema: Mapping[str, Any] | None) -> int:
    """Tokens of a prompt, as they are reserved before it is sent."""
    described = json.dumps(schema) if schema is not None else ""
    return tokens(described) + sum(tokens(message["content"]) + AROUND for message in messages)


class Chat:
    """A model in one role. What its endpoint was found to refuse is not sent to it again. `stop` ends a question."""

    def __init__(
        self,
        place: Endpoint,
        model: str,
        role: Role,
        meter: Meter,
        limits: Limits | None = None,
        stop: Event | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.place = place
        self.model = model
        self.role = role
        self.meter = meter
        self.limits = limits or Limits()
        self.stop = stop or Event()
        self.sleep = sleep or self.stop.wait
        self.price = lookup(model)
        self.terms = Terms()
        self.unheard = ""  # why requests have no answer, as long as none had one

    def ask(self, messages: Sequence[Message], schema: Mapping[str, Any] | None, temperature: float) -> str:
        """The answer's text, which is not empty; `schema` None: of no form.

        Raises Failed; BudgetSpent before a try that might exceed a limit; QrprofError for what a person has to mend.
        """
        messages = [{**message, "content": self.shown(message["content"])} for message in messages]
        left = self.meter.seconds_left() - for_the_end(self.meter.budget).seconds
        until = time.monotonic() + min(self.limits.seconds, left)
        failures = 0
        while not self.stop.is_set() and time.monotonic() < until:
            body = self.terms.body(self.model, messages, schema, temperature, self.limits.tokens_out)
            answer = self.tried(body, reserved_tokens(messages, schema), until)
            if answer.fault is None:
                self.terms, self.unheard = replace(self.terms, proven=True), ""
                return self.text_of(answer)
            self.note(answer.fault)
            other = self.terms.after_refusal(answer.fault.said, answer.fault.status or 0, body)
            if other is not None:
                self.terms = other
                continue
            failures += 1
            if not self.stop.is_set():
                self.wait(answer.fault, failures, until)
        raise Failed("timeout", f"{self.model} was not asked further")

    def tried(self, body: Mapping[str, Any], tokens_in: int, until: float) -> Received:
        """One request. Where it is not known what a broken one cost, it keeps what was reserved."""
        reserved = self.meter.reserve(self.role, tokens_in, self.limits.tokens_out, self.price)
        answer = received(self.place, body, self.limits.tokens_out, until, self.stop)
        if answer.fault is None:
            counted = tokens("".join((*answer.thoughts, *answer.texts, *answer.refusals)))
            self.meter.settle(reserved, answer.tokens_in or tokens_in, answer.tokens_out or counted)
        elif answer.fault.cost != "reserved":
            self.meter.settle(reserved, tokens_in if answer.fault.cost == "prompt" else 0, 0)
        return answer

    def note(self, fault: Fault) -> None:
        """Of a request that a deadline cut short another one before it says more."""
        if not self.terms.proven and not (self.unheard and fault.trouble == "timeout"):
            self.unheard = self.explained(fault)

    def wait(self, fault: Fault, failures: int, until: float) -> None:
        """Until the next try. Raises Failed where there is none, QrprofError where a person has to do something."""
        why = self.explained(fault)
        if fault.status in TO_MEND or fault.code == "insufficient_quota":
            raise QrprofError(f"{why}: {TO_MEND.get(fault.status or 0, TO_MEND[402])}", Exit.NO_DEVICE)
        status = fault.status or 500  # that of a fault in the stream
        again = fault.trouble == "connection" or (fault.trouble == "http" and (status in AGAIN or status >= 500))
        if not again or failures >= self.limits.tries:
            raise Failed(fault.trouble, why)
        seconds = 2.0 ** (failures - 1) if fault.wait_s is None else fault.wait_s
        if time.monotonic() + seconds >= until:
            raise Failed(fault.trouble, f"{why}; the next try would have to wait for {seconds:.0f} s")
        self.sleep(seconds)

    def explained(self, fault: Fault) -> str:
        who = f"{host_of(self.place.url)}, asked for {self.model},"
        if fault.trouble == "timeout":
            return f"{who} did not end its answer in time"
        status = f" status {fault.status}" if fault.status else ""
        said = self.shown(clean(fault.said, Masked()))
        return f"{who} gave no answer:{status} {said if len(said) <= SHOWN else said[:SHOWN] + ' ...'}"

    def text_of(self, answer: Received) -> str:
        """Raises Failed for an answer that is none."""
        text, refusal = "".join(answer.texts), "".join(answer.refusals)
        if refusal or answer.finish == "content_filter":
            said = self.shown(clean(refusal, Masked()))[:SHOWN]
            raise Failed("refusal", f"{self.model} refused: {said or 'its answer was filtered'}")
        if answer.finish == "length":
            raise Failed("truncated", f"the answer of {self.model} was longer than {self.limits.tokens_out} tokens")
        if not text.strip():
            raise Failed("empty", f"the answer of {self.model} was empty")
        return text

    def shown(self, text: str) -> str:
        """The text without this endpoint's key."""
        return text.replace(self.place.key, MASK) if len(self.place.key) >= SHORTEST_KEY else text
