"""What the optimizer's parts say to one another. Plain records, without torch; all of them can be written as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from qrprof.planner.gate.records import Interval, Outcome, Preview, Task, Verdict

ProposerName = Literal["search", "llm"]
Role = Literal["proposer", "adviser"]
Rung = Literal["preview", "gate", "sealed"]  # a short timing; all stages but the holdout; all stages
Trouble = Literal[
    "refusal", "truncated", "empty", "malformed", "no-code", "repeated", "http", "timeout", "connection", "budget"
]
End = Literal["budget", "noise", "exhausted", "not-worth-it", "cancelled", "failed"]


# --- what is tried


@dataclass(frozen=True)
class Proposal:
    """One candidate file, and why it is thought to be better."""

    source: str  # the whole file
    parent: str | None  # sha256 of the candidate that it was made from; None: of the starting file
    changed: str  # one sentence
    expects: str = ""  # the effect, and on which phase
    settings: Mapping[str, object] = field(default_factory=dict)  # values of the file's tunables, where it has some
    lane: str = ""  # the name of the lane whose cases alone it is for (`lanes.split`); "": all cases


@dataclass(frozen=True)
class Job:
    """What is asked of the gate about one candidate."""

    task: Task
    source: str
    parent: str | None  # the source of the candidate that it has to beat, too
    rung: Rung
    tries: int  # candidates of this task tried so far, this one included
    query: int | None = None  # number of the holdout's query that was counted for this job; None: it may make none
    rounds: int = 3  # of a preview's timing


@dataclass(frozen=True)
class Evaluation:
    """What came back of a job."""

    job: Job
    seconds: float  # that it held its slot
    host: str
    device: str  # "cpu", or the GPU's name and uuid
    preview: Preview | None = None  # of the rung "preview"
    verdict: Verdict | None = None  # of the other rungs
    lost: str | None = None  # why there is neither: the host or the process is gone

    @property
    def outcome(self) -> Outcome:
        if self.verdict is not None:
            return self.verdict.outcome
        return self.preview.outcome if self.preview is not None else "INFRA"

    @property
    def over(self) -> Interval | None:
        """Speed over what it had to beat."""
        if self.verdict is not None:
            return self.verdict.over_parent or self.verdict.speedup
        return self.preview.over if self.preview is not None else None


@dataclass(frozen=True)
class Candidate:
    """One that was tried, as it is kept."""

    number: int  # within its optimization, from 1
    sha256: str
    proposal: Proposal
    rung: Rung  # the highest that it was taken to
    outcome: Outcome
    over: Interval | None  # speed over the starting file; None: not timed, or it is that file
    why: str  # its first finding, one sentence; "" where there is none
    verdict: str | None = None  # id
    lane: str = ""  # the cases that it is for; "": all
    rounds: int = 0  # of the longest preview
    cases: Mapping[str, Interval] = field(default_factory=dict)  # `over` by case, where it was timed


# --- what it may cost


@dataclass(frozen=True)
class Budget:
    """Hard limits; None: no limit of this kind."""

    seconds: float | None = 1800.0
    evaluations: int | None = 40
    dollars: float | None = 2.0
    tokens: int | None = None
    gpu_seconds: float | None = None


@dataclass(frozen=True)
class Usage:
    """What was spent. `dollars` None: a model's price is unknown."""

    seconds: float = 0.0
    evaluations: int = 0
    dollars: float | None = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    requests: int = 0
    gpu_seconds: float = 0.0


# --- what is to be made faster


@dataclass(frozen=True)
class Stakes:
    """What the program's step can gain by the op, ns."""

    op_ns: float  # that the op takes now
    least_ns: float  # that it would take at best
    gain_ns: float  # that the step would then save
    noise_ns: float | None  # a smaller gain could not be seen; None: not measured


@dataclass(frozen=True)
class Start:
    """An optimization as it is asked for."""

    id: str
    task: Task
    source: str  # the starting file
    proposer: ProposerName
    stock: bool = False  # the starting file is the stock op
    target: str = ""  # the ranking's key; "": none was ranked
    run_id: str = ""
    budget: Budget = field(default_factory=Budget)
    beam: int = 4  # parents kept, of each lane
    patience: int = 10  # candidates without a better one, after which it is a plateau
    stakes: Stakes | None = None  # None: no gain is too small
    feedback: tuple[str, ...] = ()
    plan: Mapping[str, object] = field(default_factory=dict)  # record of the event "plan"; empty: none


# --- what is known when something is to be proposed


@dataclass(frozen=True)
class Known:
    """What a proposer is told. Never tolerance code, seeds, or what the holdout holds."""

    task: Task
    start: str  # the starting file's source
    beam: tuple[tuple[Candidate, ...], ...] = ()  # parents by lane, the best first
    tried: tuple[Candidate, ...] = ()  # all, oldest first
    hints: tuple[str, ...] = ()  # of a person, oldest first
    feedback: tuple[str, ...] = ()  # of the profile: a sentence each
    lessons: tuple[str, ...] = ()
    plateau: bool = False  # nothing better for a while: bolder, or another parent
    advice: str = ""  # the adviser's, on a plateau
    wanted: int = 1  # proposals that can be evaluated at once


@dataclass(frozen=True)
class Proposed:
    """A proposer's answer."""

    proposals: tuple[Proposal, ...] = ()
    rung: Rung = "preview"  # to which these are to be taken
    rounds: int = 3
    troubles: tuple[tuple[Trouble, str], ...] = ()  # events, not crashes: a sentence each
    done: str | None = None  # nothing more to propose, and why


class Proposer(Protocol):
    name: ProposerName

    @property
    def unheard(self) -> str:
        """Why no request of a model was answered; "" where one was, or none was made."""

    def propose(self, known: Known) -> Proposed:
        """Raises QrprofError only for what a person has to mend, as a missing key; BudgetSpent where none is left."""


class Adviser(Protocol):
    def advise(self, known: Known) -> str:
        """What to try on a plateau, in a few sentences; "" where nothing came. Raises as Proposer.propose."""


class Evaluator(Protocol):
    """Where jobs are evaluated."""

    slots: int

    def evaluate(self, jobs: Sequence[Job]) -> "Sequence[Evaluation]":
        """All jobs, as many at once as there are slots; in the jobs' order. What a lost host held is retried once."""

    def cancel(self) -> None:
        """End what runs within a second; it comes back as `lost`."""


class BudgetSpent(Exception):
    """A limit would be exceeded by what is to be done next; the text names it."""


# --- what happened: the ledger keeps every one, and all displays are made of them


EventKind = Literal[
    "started", "plan", "proposed", "judged", "better", "trouble", "usage", "advice", "hint", "switched", "paused",
    "resumed", "ended",
]  # fmt: skip


@dataclass(frozen=True)
class Event:
    """`record` is what the kind has, as JSON holds it.

    started: target, task, proposer, budget. plan: text, ceiling_x, gain, cost. proposed: number, sha256, changed.
    judged: number, outcome, over, why, rung, seconds, host, device. better: number, over. trouble: what, text.
    usage: role, the Usage so far. advice: text. hint: text. switched: from, to, why. paused, resumed.
    ended: end, text, best (number or null), verdict.
    """

    kind: EventKind
    record: Mapping[str, object]
    at: str  # ISO 8601, UTC
