"""The timing stage: the candidate against stock and its parent, their base against itself, and a winner once more.

The base is what the candidate has to beat beside the stock op: the parent candidate, where there is one. Two processes
of it are in the same rounds, since a busy machine changes from minute to minute; what they differ by is the noise.
What is shown of a winner is its second timing, in a new process: the first was chosen for being good.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from qrprof.planner.gate.diagnose import with_cause
from qrprof.planner.gate.floor import floor_ns
from qrprof.planner.gate.judge import judged
from qrprof.planner.gate.promote import HOPELESS, Decision, decide
from qrprof.planner.gate.readings import impossible, logs, mismatch, nets
from qrprof.planner.gate.records import CaseTime, Finding, Interval, TaskCase
from qrprof.planner.gate.replies import Worker
from qrprof.planner.gate.rounds import CANDIDATE, PARENT, STAGE, STOCK, TWIN, Legs, calls_of, measure, pairs
from qrprof.planner.gate.stats import Noise, interval, noise_of, standard_error, together
from qrprof.planner.gate.threads import one_thread
from qrprof.planner.gate.trial import Checked, Trial, failure
from qrprof.profiler.devices import Peaks

BUDGET_NS: Final = 5e9  # of one measurement: more rounds where they are short, fewer calls where they are long
FEWEST_ROUNDS, MOST_ROUNDS = 10, 30
FEWER: Final = 0.5  # of the calls at least: what surrounds a request has to stay small beside it
PATIENCE_NS: Final = 120e9  # after which a measurement ends with the rounds that it has
BASES: Final = {STOCK: "the stock op", PARENT: "the parent"}
FURTHER: Final = 2  # times as many rounds, once, where the first do not decide


@dataclass(frozen=True)
class Against:
    """What the candidate is timed against, and the means."""

    twin: Worker  # a second one of the base
    parent: Worker | None
    peaks: Peaks | None  # of the device; None: not measured
    tries: int
    clock: Callable[[], int]


@dataclass(frozen=True)
class Timed:
    checked: Checked
    times: tuple[CaseTime, ...] = ()
    speedup: Interval | None = None
    over_parent: Interval | None = None
    noise: float | None = None
    needed: float | None = None


@dataclass(frozen=True)
class Result:
    """Of one measurement: a decision, or why there is none."""

    decision: Decision
    noise: Noise | None = None
    speedup: Interval | None = None
    over_parent: Interval | None = None

    @property
    def undecided(self) -> bool:
        return self.decision.outcome == "UNKNOWN" and self.noise is not None and self.noise.fraction < HOPELESS


SHORT: Final = "calls are too short to be timed beside the round trip to a process, or the machine is too busy"
DROWNED: Final = Decision("UNKNOWN", "noise", SHORT, 1.0)
BUSY: Final = Decision("UNKNOWN", "noise", f"fewer than {FEWEST_ROUNDS} rounds in {PATIENCE_NS / 1e9:.0f} s", 1.0)


def timing(trial: Trial, against: Against) -> Timed:
    """Raises Ended."""
    with one_thread():
        return timed(trial, against)


def timed(trial: Trial, against: Against) -> Timed:
    legs = legs_of(trial, against, trial.candidate)
    calls = {case.name: calls_of(trial, legs, case) for case in trial.task.development}
    calls, rounds = fill(trial, legs, calls, against.clock)
    result = judge(trial, legs, against.tries)
    if result.undecided and not legs.checked.failed:
        repeat(trial, legs, calls, FURTHER * rounds, against.clock)
        result = judge(trial, legs, against.tries)
    if result.decision.outcome == "PASS" and not legs.checked.failed:
        with trial.fresh() as worker:
            again = legs_of(trial, against, worker)
            again.checked += legs.checked
            for case in trial.task.development:
                calls_of(trial, again, case)  # warms it up
            repeat(trial, again, calls, rounds, against.clock)
        legs, result = again, judge(trial, again, against.tries)
    legs.checked += judged(trial.task, trial.ask([trial.draw(trial.task.development[0])], watch=True), STAGE)
    return told(trial, legs, result, calls, against.peaks)


def legs_of(trial: Trial, against: Against, candidate: Worker) -> Legs:
    parent = {PARENT: against.parent} if against.parent else {}
    return Legs({STOCK: trial.stock, TWIN: against.twin, **parent, CANDIDATE: candidate})


def fill(trial: Trial, legs: Legs, calls: Mapping[str, int], clock: Callable[[], int]) -> tuple[dict[str, int], int]:
    """Measure for about the budget; the calls of a request and the number of rounds that this was to take."""
    start = clock()
    measure(trial, legs, calls)
    rounds = BUDGET_NS / max(clock() - start, 1)
    fitted = {name: fewer(most, rounds / FEWEST_ROUNDS) for name, most in calls.items()}
    count = max(FEWEST_ROUNDS, min(MOST_ROUNDS, int(rounds)))
    repeat(trial, legs, fitted, count - 1, clock)
    return fitted, count


def fewer(calls: int, share: float) -> int:
    """So large a share of the calls, where it is less than all; of several not one, whose number could be told."""
    return max(min(calls, 2), math.ceil(calls * min(1.0, max(FEWER, share))))


def repeat(trial: Trial, legs: Legs, calls: Mapping[str, int], rounds: int, clock: Callable[[], int]) -> None:
    start = clock()
    for _ in range(rounds):
        if clock() - start < PATIENCE_NS:
            measure(trial, legs, calls)


def judge(trial: Trial, legs: Legs, tries: int) -> Result:
    busy = len(legs.of(STOCK, trial.task.development[0])) < 2 * FEWEST_ROUNDS
    return Result(BUSY) if busy else read(trial, legs, tries)


def read(trial: Trial, legs: Legs, tries: int) -> Result:
    """What the readings say, however few there are."""
    twins, over_stock = pairs(trial, legs, TWIN, legs.base), pairs(trial, legs, CANDIDATE, STOCK)
    over_base = over_stock if legs.base == STOCK else pairs(trial, legs, CANDIDATE, PARENT)
    if twins is None or over_stock is None or over_base is None:
        return Result(DROWNED)
    noise, speedup, over_parent = noise_of(twins), together(over_stock), None
    decision = decide(speedup, noise, standard_error(over_stock), tries, BASES[STOCK])
    if legs.base == PARENT:
        over_parent = together(over_base)
        beside = decide(over_parent, noise, standard_error(over_base), tries, BASES[PARENT])
        worse = beside if decision.outcome == "PASS" or beside.outcome == "FAIL" else decision
        decision = replace(worse, detail=f"{beside.detail}; {decision.detail}", needed=decision.needed)
    return Result(decision, noise, speedup, over_parent)


def told(trial: Trial, legs: Legs, result: Result, calls: Mapping[str, int], peaks: Peaks | None) -> Timed:
    checked = with_cause(trial, legs.checked, [legs.failing] if legs.failing else [], STAGE)
    decision, cases = result.decision, trial.task.development
    decided = [failure(decision.detector, STAGE, decision.detail, None, decision.outcome)] if decision.detector else []
    checked += Checked((*shape_dependent(checked), *clocks(trial, legs, peaks), *decided))
    times = () if result.speedup is None else tuple(case_time(legs, case, calls[case.name]) for case in cases)
    noise = result.noise.fraction if result.noise else None
    return Timed(checked, times, result.speedup, result.over_parent, noise, decision.needed)


def shape_dependent(checked: Checked) -> Iterator[Finding]:
    """Wrong here, where all earlier stages passed, and not for what came before."""
    names = {finding.detector for finding in checked.findings}
    if "wrong" in names and "phase" not in names:
        yield failure("shape-dependent", STAGE, "right where it was checked and wrong where it was timed")


def clocks(trial: Trial, legs: Legs, peaks: Peaks | None) -> Iterator[Finding]:
    for case in trial.task.development:
        ours, stock = legs.of(CANDIDATE, case), legs.of(STOCK, case)
        if detail := mismatch(ours, stock):
            yield failure("clock-mismatch", STAGE, detail, case.name, "SUSPECT")
        if detail := impossible(ours, stock, floor_ns(trial.task.op, case, trial.task.device, peaks)):
            yield failure("impossible-time", STAGE, detail, case.name)


def case_time(legs: Legs, case: TaskCase, calls: int) -> CaseTime:
    by_leg = {leg: tuple(nets(legs.of(leg, case))) for leg in legs.workers if leg != TWIN}
    ratios = logs(legs.of(STOCK, case), legs.of(CANDIDATE, case)) or ()
    parent = median(by_leg[PARENT]) if PARENT in by_leg else None
    stock, candidate = median(by_leg[STOCK]), median(by_leg[CANDIDATE])
    return CaseTime(case.name, stock, parent, candidate, interval(ratios), calls, len(ratios), by_leg)
