"""A short look at a candidate, by the gate's own means: enough to drop it or to rank it, never to accept it.

Built, held to the contract, asked on two draws of each case, then a few rounds against the base, with every answer
checked. There is no null test, no adversarial input, no replay, no second timing and no holdout. Most of its time goes
into starting processes: `workers` should lend those of the stock op and of the parent again (`Pool`).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import Final

import torch

from qrprof.planner.gate.contract import contract
from qrprof.planner.gate.development import development
from qrprof.planner.gate.draw import draw, fresh_seed
from qrprof.planner.gate.gate import Lane, Run, outcome_of
from qrprof.planner.gate.records import Interval, Preview, Stage, Task
from qrprof.planner.gate.replies import Worker, Workers
from qrprof.planner.gate.rounds import CANDIDATE, calls_of, pairs
from qrprof.planner.gate.stats import interval
from qrprof.planner.gate.threads import few_threads, one_thread
from qrprof.planner.gate.timing import Against, Result, legs_of, read, repeat
from qrprof.planner.gate.trial import Checked, Seeds

STAGES: Final[tuple[Stage, ...]] = ("build", "contract", "development", "timing")
WARM: Final = 2  # calls of each case, the first of which compile
DRAWS: Final = 1  # private ones, beside the one that anybody can know

Turn = AbstractContextManager[object]


@dataclass
class Look(Run):
    """A gate that is content with little."""

    rounds: int = 3
    turn: Turn = field(default_factory=nullcontext)
    beside: Worker = field(init=False)  # of the stock op
    rivals: Against = field(init=False)
    result: Result | None = None
    by_case: dict[str, Interval] = field(default_factory=dict)  # over the base

    def build(self) -> Checked:
        """All workers are started, and compile what they need, before the turn is taken."""
        with ThreadPoolExecutor(1) as thread:
            rivals = thread.submit(self.opponents) if self.parent else None
            self.beside = self.stock()
            checked = super().build()
            self.rivals = rivals.result() if rivals else self.opponents()
        assert self.candidate is not None
        warm = [worker for worker in (self.candidate, self.rivals.twin, self.rivals.parent) if worker is not None]
        inputs = [[draw(case, self.seeds(), self.task.device)] for case in self.task.development for _ in range(WARM)]
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda worker: [worker.call(given) for given in inputs], warm))
        return checked

    def contract(self) -> Checked:
        """The profiler that watches takes seconds to start, in which the device does nothing."""
        self.trial = self.against(self.beside)
        checked = contract(self.trial)
        torch.cuda.empty_cache()  # what the checks took, for those that measure before it is this one's turn
        return checked

    def development(self) -> Checked:
        self.open.enter_context(self.turn)
        return development(self.begun(), DRAWS)

    def timing(self) -> Checked:
        trial = self.begun()
        with one_thread():
            legs = legs_of(trial, self.rivals, trial.candidate)
            calls = {case.name: calls_of(trial, legs, case) for case in self.task.development}
            repeat(trial, legs, calls, self.rounds, self.clock)
            self.result = read(trial, legs, self.lane.tries)
        decisive = pairs(trial, legs, CANDIDATE, legs.base) or {}
        self.by_case = {name: interval(own.logs) for name, own in decisive.items()}
        return legs.checked


def preview(
    task: Task,
    source: Path,
    parent: Path | None = None,
    *,
    workers: Workers,
    clock: Callable[[], int] = perf_counter_ns,
    seeds: Seeds = fresh_seed,
    rounds: int = 3,
    tries: int = 1,
    turn: Turn | None = None,
) -> Preview:
    """Look at the candidate in `source`, timed against the `parent` candidate or else the stock op.

    PASS says that nothing was found wrong, however fast it is. `turn` is held once the contract is kept; before that,
    processes start and compile, and a few calls are watched. Raises QrprofError where a captured matrix of the task is
    gone.
    """
    with few_threads(task), ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="qrprof-gate-")))
        lane, held = Lane(tries), turn or nullcontext()
        look = Look(task, source, parent, workers, clock, seeds, lane, None, stack, folder, rounds=rounds, turn=held)
        for stage in STAGES:
            if not look.step(stage):
                break
    torch.cuda.empty_cache()
    return told(look)


def told(look: Look) -> Preview:
    findings, result = look.seen.findings, look.result
    sentences = tuple(f"{one.case}: {one.detail}" if one.case else one.detail for one in findings)
    outcome = outcome_of(findings)
    if result is None or outcome == "FAIL":
        return Preview(outcome, sentences, None)
    over = result.over_parent or result.speedup
    noise = result.noise.fraction if result.noise else None
    outcome = "UNKNOWN" if over is None else outcome
    return Preview(outcome, (*sentences, result.decision.detail), over, noise, look.by_case)
