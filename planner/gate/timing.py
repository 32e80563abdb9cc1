"""The timing stage: the noise of stock against stock, the candidate against stock and its parent, and a winner again.

What is shown of a winner is its second timing, in a new process: the first was chosen for being good.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

from qrprof.planner.gate.diagnose import with_cause
from qrprof.planner.gate.floor import floor_ns
from qrprof.planner.gate.promote import Decision, decide
from qrprof.planner.gate.readings import impossible, logs, mismatch, nets
from qrprof.planner.gate.records import CaseTime, Finding, Interval, TaskCase
from qrprof.planner.gate.replies import Worker
from qrprof.planner.gate.rounds import CANDIDATE, PARENT, STAGE, STOCK, TWIN, Flush, Legs, calls_of, measure, pairs
from qrprof.planner.gate.stats import Noise, interval, noise_of, standard_error, together
from qrprof.planner.gate.trial import Checked, Trial, failure
from qrprof.profiler.devices import Peaks

BUDGET_NS: Final = 3e9  # of one measurement: more rounds where they are short
FEWEST_ROUNDS, MOST_ROUNDS = 8, 24
HOPELESS: Final = 0.5  # of noise
FURTHER: Final = 2  # times as many rounds, once, where the first do not decide


@dataclass(frozen=True)
class Against:
    """What the candidate is timed against, and the means."""

    twin: Worker  # a second one of the stock op
    parent: Worker | None
    peaks: Peaks | None  # of the device; None: not measured
    tries: int
    clock: Callable[[], int]
    flush: Flush


@dataclass(frozen=True)
class Timed:
    checked: Checked
    times: tuple[CaseTime, ...] = ()
    speedup: Interval | None = None
    over_parent: Interval | None = None
    noise: float | None = None
    needed: float | None = None


@dataclass(frozen=True)
class Outcome:
    """Of one measurement: a decision, or why there is none."""

    decision: Decision
    noise: Noise | None = None
    speedup: Interval | None = None
    over_parent: Interval | None = None

    @property
    def undecided(self) -> bool:
        """More rounds could decide it: they do not where the machine is too noisy altogether."""
        return self.decision.outcome == "UNKNOWN" and self.noise is not None and self.noise.fraction < HOPELESS


DROWNED: Final = Decision("UNKNOWN", "noise", "calls are too short beside the round trip to a process to be timed", 1.0)


def timing(trial: Trial, against: Against) -> Timed:
    """Raises Ended."""
    null = Legs({STOCK: trial.stock, TWIN: against.twin})
    legs = legs_of(trial, against, trial.candidate)
    calls = {case.name: calls_of(trial, [*legs.workers.values(), against.twin], case) for case in cases(trial)}
    rounds = fill(trial, null, calls, against)
    measure(trial, legs, calls, rounds, against.flush)
    outcome = judge(trial, null, legs, against.tries)
    if outcome.undecided and not legs.checked.failed:
        for one in (null, legs):
            measure(trial, one, calls, FURTHER * rounds, against.flush)
        outcome = judge(trial, null, legs, against.tries)
    if outcome.decision.outcome == "PASS" and not legs.checked.failed:
        with trial.fresh() as worker:
            again = legs_of(trial, against, worker)
            again.checked += legs.checked
            for case in cases(trial):
                calls_of(trial, [worker], case)  # warms it up
            measure(trial, again, calls, rounds, against.flush)
        legs, outcome = again, judge(trial, null, again, against.tries)
    return told(trial, legs, outcome, calls, against.peaks)


def legs_of(trial: Trial, against: Against, candidate: Worker) -> Legs:
    parent = {PARENT: against.parent} if against.parent else {}
    return Legs({STOCK: trial.stock, **parent, CANDIDATE: candidate})


def cases(trial: Trial) -> tuple[TaskCase, ...]:
    return trial.task.development


def fill(trial: Trial, legs: Legs, calls: Mapping[str, int], against: Against) -> int:
    """Measure for about the budget; the number of rounds that this took."""
    start = against.clock()
    measure(trial, legs, calls, 1, against.flush)
    one = max(against.clock() - start, 1)
    rounds = max(FEWEST_ROUNDS, min(MOST_ROUNDS, int(BUDGET_NS / one)))
    measure(trial, legs, calls, rounds - 1, against.flush)
    return rounds


def judge(trial: Trial, null: Legs, legs: Legs, tries: int) -> Outcome:
    """The decision is over the parent where there is one."""
    twins, over_stock = pairs(trial, null, TWIN, STOCK), pairs(trial, legs, CANDIDATE, STOCK)
    over_parent = pairs(trial, legs, CANDIDATE, PARENT) if PARENT in legs.workers else None
    if twins is None or over_stock is None or (over_parent is None and PARENT in legs.workers):
        return Outcome(DROWNED)
    noise, decisive = noise_of(twins), over_parent or over_stock
    base = "the parent" if over_parent else "the stock op"
    decision = decide(together(decisive), noise, standard_error(decisive), tries, base)
    return Outcome(decision, noise, together(over_stock), together(over_parent) if over_parent else None)


def told(trial: Trial, legs: Legs, outcome: Outcome, calls: Mapping[str, int], peaks: Peaks | None) -> Timed:
    checked = with_cause(trial, legs.checked, [legs.failing] if legs.failing else [], STAGE)
    decision = outcome.decision
    decided = [failure(decision.detector, STAGE, decision.detail, None, decision.outcome)] if decision.detector else []
    checked += Checked((*shape_dependent(checked), *clocks(trial, legs, peaks), *decided))
    times = () if outcome.speedup is None else tuple(case_time(legs, case, calls[case.name]) for case in cases(trial))
    noise = outcome.noise.fraction if outcome.noise else None
    return Timed(checked, times, outcome.speedup, outcome.over_parent, noise, decision.needed)


def shape_dependent(checked: Checked) -> Iterator[Finding]:
    """Wrong here, where all earlier stages passed, and not for what came before."""
    names = {finding.detector for finding in checked.findings}
    if "wrong" in names and "phase" not in names:
        yield failure("shape-dependent", STAGE, "right where it was checked and wrong where it was timed")


def clocks(trial: Trial, legs: Legs, peaks: Peaks | None) -> Iterator[Finding]:
    for case in cases(trial):
        ours, stock = legs.of(CANDIDATE, case), legs.of(STOCK, case)
        if detail := mismatch(ours, stock):
            yield failure("clock-mismatch", STAGE, detail, case.name, "SUSPECT")
        if detail := impossible(ours, stock, floor_ns(trial.task.op, case, trial.task.device, peaks)):
            yield failure("impossible-time", STAGE, detail, case.name)


def case_time(legs: Legs, case: TaskCase, calls: int) -> CaseTime:
    by_leg = {leg: tuple(nets(legs.of(leg, case))) for leg in legs.workers}
    ratios = logs(legs.of(STOCK, case), legs.of(CANDIDATE, case)) or ()
    parent = median(by_leg[PARENT]) if PARENT in by_leg else None
    stock, candidate = median(by_leg[STOCK]), median(by_leg[CANDIDATE])
    return CaseTime(case.name, stock, parent, candidate, interval(ratios), calls, len(ratios), by_leg)
