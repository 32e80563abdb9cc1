"""How time is taken: by the gate's clock alone, in ABBA rounds of stock, the base twice, and the candidate.

A request holds so many calls, each on inputs drawn for it, that it lasts; all legs of a half round are given the same
inputs, and the two halves are mirrored, so that drift meets all alike. Cases, orders and the number of calls are drawn,
and requests that are not timed come in between. Every answer of the candidate is checked. All legs are asked for the
round trip, so that none is treated otherwise, but what is taken off is the stock worker's: a candidate that slowed down
its own would gain by it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from qrprof.planner.gate.judge import judged
from qrprof.planner.gate.readings import Reading, logs
from qrprof.planner.gate.records import TaskCase
from qrprof.planner.gate.replies import Reply, Worker
from qrprof.planner.gate.sizes import elements
from qrprof.planner.gate.stats import Pairs
from qrprof.planner.gate.trial import Asked, Checked, Input, Round, Trial

STAGE: Final = "timing"
STOCK, TWIN, PARENT, CANDIDATE = "stock", "twin", "parent", "candidate"  # legs
REQUEST_NS: Final = 5e6  # that the calls of one request last at least
LONGEST_NS: Final = 100e6  # that they may last where the other of the two is far faster
MOST_CALLS: Final = 128
MOST_ELEMENTS: Final = 1 << 24  # of a request's arguments
FEW, SEVERAL = 2, 16  # calls of a rough timing
SHORT_NS: Final = 1e6  # of a call, below which what a request takes by itself counts
UNTIMED: Final = 0.25  # requests that are not timed, for each round
UNTIMED_CALLS: Final = 4


@dataclass
class Legs:
    """The workers that are timed against each other, and their readings by leg and case."""

    workers: Mapping[str, Worker]
    readings: dict[tuple[str, str], list[Reading]] = field(default_factory=dict)
    checked: Checked = field(default_factory=Checked)  # what came of the candidate's answers
    failing: Round | None = None  # the first request with a wrong one

    @property
    def base(self) -> str:
        """What the candidate has to beat."""
        return PARENT if PARENT in self.workers else STOCK

    def of(self, leg: str, case: TaskCase) -> list[Reading]:
        return self.readings.setdefault((leg, case.name), [])


def calls_of(trial: Trial, legs: Legs, case: TaskCase) -> int:
    """How many calls a request needs to last in the candidate and its base, the slower one not too long.

    Warms all legs up: what compiles is not timed.
    """
    by_leg = {leg: max(once(trial, worker, case), 1.0) for leg, worker in legs.workers.items()}
    times = (by_leg[CANDIDATE], by_leg[legs.base])
    most = min(MOST_CALLS, LONGEST_NS / max(times), MOST_ELEMENTS / max(1, elements(case)))
    return max(1, math.ceil(min(REQUEST_NS / min(times), most)))


def once(trial: Trial, worker: Worker, case: TaskCase) -> float:
    """ns of a call, roughly: by the child's clock, which no busy machine keeps waiting. It decides of nothing else."""
    few = [testimony_ns(trial, worker, case, FEW) for _ in range(2)][-1]
    if few / FEW > SHORT_NS or SEVERAL * elements(case) > MOST_ELEMENTS:
        return few / FEW
    return (testimony_ns(trial, worker, case, SEVERAL) - few) / (SEVERAL - FEW)


def testimony_ns(trial: Trial, worker: Worker, case: TaskCase, calls: int) -> int:
    return worker.call([trial.draw(case).args for _ in range(calls)]).testimony_ns


def measure(trial: Trial, legs: Legs, calls: Mapping[str, int]) -> None:
    """One more round of every case, in an order drawn for it. Raises Ended."""
    cases = list(trial.task.development)
    trial.rng.shuffle(cases)
    for case in cases:
        if trial.rng.random() < UNTIMED:
            untimed(trial, legs, trial.rng.choice(cases))
        abba(trial, legs, case, drawn_calls(trial, calls[case.name]))


def drawn_calls(trial: Trial, least: int) -> int:
    """A number of calls that cannot be told in advance; one where a call lasts long enough by itself."""
    return least if least == 1 else trial.rng.randint(least, least + least // 2)


def abba(trial: Trial, legs: Legs, case: TaskCase, calls: int) -> None:
    """There and back through all legs, each way on inputs of its own, and once through them without a call."""
    order = list(legs.workers)
    trial.rng.shuffle(order)
    timed: list[tuple[str, Reply]] = []
    for way in (order, order[::-1]):
        inputs = [trial.draw(case) for _ in range(calls)]
        args = [one.args for one in inputs]
        replies = {leg: legs.workers[leg].call(args) for leg in way}
        timed += replies.items()
        keep(trial, legs, inputs, replies)
    outputs = [call.outputs for call in replies[STOCK].calls]
    trips = {leg: worker.echo(args, outputs) for leg, worker in legs.workers.items()}
    for leg, reply in timed:
        legs.of(leg, case).append(Reading(calls, reply.wall_ns, trips[STOCK], reply.testimony_ns, reply.launches))


def untimed(trial: Trial, legs: Legs, case: TaskCase) -> None:
    inputs = [trial.draw(case) for _ in range(trial.rng.randint(1, UNTIMED_CALLS))]
    replies = {leg: legs.workers[leg].call([one.args for one in inputs]) for leg in (CANDIDATE, STOCK)}
    keep(trial, legs, inputs, replies)


def keep(trial: Trial, legs: Legs, inputs: Sequence[Input], replies: Mapping[str, Reply]) -> None:
    """Check the candidate's answers, off the clock; of their tensors only those of a wrong request are kept."""
    ours, stock = replies[CANDIDATE], replies[STOCK]
    answers = zip(inputs, ours.calls, stock.calls, strict=True)
    round_ = Round(tuple(Asked(*answer) for answer in answers), ours, stock)
    found = judged(trial.task, round_, STAGE)
    legs.checked += found
    if found.failed and legs.failing is None:
        legs.failing = round_


def pairs(trial: Trial, legs: Legs, leg: str, base: str) -> dict[str, Pairs] | None:
    """By case; None where the calls of one drown in the round trip."""
    found = {case.name: (case.weight, logs(legs.of(base, case), legs.of(leg, case))) for case in trial.task.development}
    kept = {name: Pairs(weight, own) for name, (weight, own) in found.items() if own is not None}
    return kept if len(kept) == len(found) else None
