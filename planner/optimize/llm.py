"""A model as the proposer, and another one as its adviser."""

from collections.abc import Callable
from threading import Event
from typing import Final

from qrprof.planner.optimize import prompt
from qrprof.planner.optimize.answer import SCHEMA, Unread, read
from qrprof.planner.optimize.budget import Meter
from qrprof.planner.optimize.chat import Chat, Failed, Limits
from qrprof.planner.optimize.journal import hash_of
from qrprof.planner.optimize.records import BudgetSpent, Known, Proposal, Proposed, ProposerName, Trouble
from qrprof.planner.optimize.stream import Endpoint
from qrprof.planner.optimize.tunables import tunables
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.readers.texts import Masked, clean

USUAL, BOLD = 0.7, 1.0  # temperatures
ADVICE: Final = Limits(tokens_out=8192)


class LLM:
    """Proposes what a model writes. Whoever makes it has asked for consent and checked the prices."""

    name: ProposerName = "llm"

    def __init__(
        self,
        place: Endpoint,
        model: str,
        meter: Meter,
        limits: Limits | None = None,
        stop: Event | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.chat = Chat(place, model, "proposer", meter, limits, stop, sleep)
        self.note = ""  # why the last answer was of no use

    @property
    def unheard(self) -> str:
        return self.chat.unheard

    def propose(self, known: Known) -> Proposed:
        """As many candidates as are wanted, each from another parent; what fails is a trouble.

        Raises BudgetSpent where the budget has no room for one more request, and QrprofError for what a person has to
        mend, as a key that is not accepted.
        """
        proposals: list[Proposal] = []
        troubles: list[tuple[Trouble, str]] = []
        taken = {hash_of(known.start), *(one.sha256 for one in known.tried)}
        for turn in range(known.wanted):
            try:
                proposal = self.one(known, len(known.tried) + turn, taken)
            except (Failed, Unread) as failure:
                troubles.append((failure.trouble, str(failure)))
                self.note = str(failure) if isinstance(failure, Unread) else ""
            except BudgetSpent as spent:
                if not proposals:
                    raise
                troubles.append(("budget", str(spent)))
                break
            else:
                proposals.append(proposal)
                taken.add(hash_of(proposal.source))
                self.note = ""
        return Proposed(tuple(proposals), troubles=tuple(troubles))

    def one(self, known: Known, turn: int, taken: set[str]) -> Proposal:
        parent, lane = prompt.focus_of(known, turn)
        text = self.chat.ask(prompt.build(known, turn, self.note), SCHEMA, BOLD if known.plateau else USUAL)
        answer = read(text, prompt.source_of(known, parent))
        if hash_of(answer.source) in taken:
            raise Unread("repeated", "the model's file is one that was tried before")
        changed = answer.changed or "not said"
        made_from = parent.sha256 if parent is not None else None
        return Proposal(answer.source, made_from, changed, answer.expects, settings(answer.source), lane)


class Adviser:
    """Says what to try, on a plateau."""

    def __init__(
        self,
        place: Endpoint,
        model: str,
        meter: Meter,
        stop: Event | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.chat = Chat(place, model, "adviser", meter, ADVICE, stop, sleep)

    def advise(self, known: Known) -> str:
        """A few sentences on one line; "" where there is no answer. Raises what `LLM.propose` does."""
        try:
            return clean(self.chat.ask(prompt.for_adviser(known), None, USUAL), Masked())
        except Failed:
            return ""


def settings(source: str) -> dict[str, object]:
    try:
        return {one.name: one.value for one in tunables(source)}
    except (QrprofError, RecursionError):  # what it declares is not sound, and nothing varies it
        return {}
