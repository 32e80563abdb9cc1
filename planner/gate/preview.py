"""A short look at a candidate, by the gate's own means: enough to drop it or to rank it, never to accept it.

Built, held to the contract, asked on two draws of each case, then a few rounds against the base, with every answer
checked. There is no null test, no adversarial input, no replay, no second timing and no holdout. Most of its time goes
into starting processes: `workers` should lend those of the stock op and of the parent again (`Pool`).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import Final

from qrprof.planner.gate.contract import contract
from qrprof.planner.gate.development import development
from qrprof.planner.gate.draw import draw, fresh_seed
from qrprof.planner.gate.gate import Lane, Run, outcome_of
from qrprof.planner.gate.records import Finding, Stage, Task
from qrprof.planner.gate.replies import Workers
from qrprof.planner.gate.rounds import calls_of
from qrprof.planner.gate.threads import few_threads, one_thread
from qrprof.planner.gate.timing import Result, legs_of, read, repeat
from qrprof.planner.gate.trial import Checked, Seeds
from qrprof.planner.optimize.records import Preview

STAGES: Final[tuple[Stage, ...]] = ("build", "contract", "development", "timing")
DRAWS: Final = 1  # private ones, beside the one that anybody can know

Turn = AbstractContextManager[object]


@dataclass
class Look(Run):
    """A gate that is content with little."""

    rounds: int = 3
    turn: Turn = field(default_factory=nullcontext)
    result: Result | None = None

    def build(self) -> Checked:
        checked = super().build()
        assert self.candidate is not None
        for case in self.task.development:
            self.candidate.call([draw(case, self.seeds(), self.task.device)])  # compiles
        return checked

    def contract(self) -> Checked:
        self.open.enter_context(self.turn)
        self.trial = self.against(self.stock())
        return contract(self.trial)

    def development(self) -> Checked:
        return development(self.begun(), DRAWS)

    def timing(self) -> Checked:
        trial, against = self.begun(), self.opponents()
        with one_thread():
            legs = legs_of(trial, against, trial.candidate)
            calls = {case.name: calls_of(trial, legs, case) for case in self.task.development}
            repeat(trial, legs, calls, self.rounds, self.clock)
            self.result = read(trial, legs, self.lane.tries)
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

    PASS says that nothing was found wrong, however fast it is. `turn` is held from the first answer that is judged on:
    others may start and compile meanwhile, and must not run. Raises QrprofError where a captured matrix of the task is
    gone.
    """
    with few_threads(task), ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="qrprof-gate-")))
        lane, held = Lane(tries), turn or nullcontext()
        look = Look(task, source, parent, workers, clock, seeds, lane, None, stack, folder, rounds=rounds, turn=held)
        for stage in STAGES:
            if not look.step(stage):
                break
    return told(look.seen.findings, look.result)


def told(findings: tuple[Finding, ...], result: Result | None) -> Preview:
    sentences = tuple(f"{one.case}: {one.detail}" if one.case else one.detail for one in findings)
    outcome = outcome_of(findings)
    if result is None or outcome == "FAIL":
        return Preview(outcome, sentences, None)
    over = result.over_parent or result.speedup
    noise = result.noise.fraction if result.noise else None
    return Preview("UNKNOWN" if over is None else outcome, (*sentences, result.decision.detail), over, noise)
