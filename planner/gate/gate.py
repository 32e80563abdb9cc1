"""The gate: a candidate through all stages, to a verdict.

A stage is finished once begun; the first that leaves something failed or unknown is the last. What ends a worker of the
stock op, or of the parent candidate, is no fault of the candidate's.
"""

import hashlib
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import Final

from torch import Tensor

from qrprof.planner.gate.adversarial import adversarial
from qrprof.planner.gate.aten_task import stock_source
from qrprof.planner.gate.contract import contract
from qrprof.planner.gate.development import development
from qrprof.planner.gate.draw import fresh_seed
from qrprof.planner.gate.holdout import holdout_cases, verdict
from qrprof.planner.gate.judge import judged, signed
from qrprof.planner.gate.nulls import weaknesses
from qrprof.planner.gate.records import STAGES, Finding, Outcome, Stage, StageCost, Task, Verdict
from qrprof.planner.gate.replay import replay
from qrprof.planner.gate.replies import Arguments, Built, Ended, Worker, Workers
from qrprof.planner.gate.static import examine
from qrprof.planner.gate.threads import few_threads
from qrprof.planner.gate.timing import Against, Timed, timing
from qrprof.planner.gate.trial import Checked, Seeds, Trial, failure
from qrprof.planner.gate.trusted import Broken, Trusted
from qrprof.profiler.devices import Peaks

WORST_FIRST: Final[tuple[Outcome, ...]] = ("FAIL", "SUSPECT", "INFRA", "UNKNOWN")
ENDS: Final = frozenset({"FAIL", "INFRA", "UNKNOWN"})  # outcomes after which no further stage is run
MACHINE: Final = frozenset({"no-compiler"})  # reasons for which a candidate's worker ends that are not its own

Query = Callable[[], int | None]  # counts one more query of the holdout: how many that makes, None: none is left


@dataclass(frozen=True)
class Lane:
    """What came before on this task."""

    tries: int = 1  # candidates judged, this one included
    query: Query = lambda: 1


FIRST: Final = Lane()


@dataclass
class Run:
    """A gate on its way. Workers are started when a stage needs them, and end with it all."""

    task: Task
    source: Path
    parent: Path | None
    workers: Workers
    clock: Callable[[], int]
    seeds: Seeds
    lane: Lane
    peaks: Peaks | None
    open: ExitStack
    folder: Path  # for the stock op's file
    built: Built = field(default_factory=lambda: Built(0.0))
    candidate: Worker | None = None
    trial: Trial | None = None
    timed: Timed = field(default_factory=lambda: Timed(Checked()))
    queries: int = 0
    seen: Checked = field(default_factory=Checked)  # of all stages together
    costs: list[StageCost] = field(default_factory=list)

    def begun(self) -> Trial:
        assert self.trial is not None
        return self.trial

    # --- stages

    def static(self) -> Checked:
        return Checked(examine(self.source.read_text(encoding="utf-8", errors="replace"), self.task.op))

    def build(self) -> Checked:
        self.candidate = self.open.enter_context(self.workers(self.source))
        self.built = self.candidate.build()
        return Checked(tuple(signed(self.built.signs, "build", None)), 1, 1)

    def null(self) -> Checked:
        self.trial = self.against(stock := self.stock())
        cases = len(self.task.development)
        return Checked(tuple(weaknesses(self.task, answered(stock), self.seeds)), cases, cases)

    def contract(self) -> Checked:
        return contract(self.begun())

    def development(self) -> Checked:
        return development(self.begun())

    def adversarial(self) -> Checked:
        return adversarial(self.begun())

    def replay(self) -> Checked:
        return replay(self.begun())

    def timing(self) -> Checked:
        self.timed = timing(self.begun(), self.opponents())
        return self.timed.checked + Checked(fallback(self.timed, (self.seen + self.timed.checked).same_bits))

    def holdout(self) -> Checked:
        """Pass or fail alone: what a candidate does wrong here, and on which case, is not told."""
        used = self.lane.query()
        if used is None:
            detail = "all queries of the sealed holdout are used up on this task; take one of another run"
            return Checked((failure("seed-known", "holdout", detail, None, "UNKNOWN"),))
        self.queries = used
        trial = self.begun()
        cases = holdout_cases(self.task, trial.rng)
        try:
            found = judged(self.task, trial.ask([trial.draw(case) for case in cases]), "holdout")
        except Ended:
            return Checked(tuple(verdict(passed=False)), 0, len(cases))
        return Checked(tuple(verdict(not found.findings)), found.checked, found.of)

    # --- workers

    def against(self, stock: Worker) -> Trial:
        """The trial of the candidate that was built, beside this worker of the stock op."""
        assert self.candidate is not None
        rng = random.Random(self.seeds())
        return Trial(self.task, self.source, self.workers, stock, self.candidate, self.built, self.seeds, rng)

    def opponents(self) -> Against:
        """What the candidate is timed against, started."""
        parent = self.started(self.parent) if self.parent else None
        twin = self.started(self.parent) if self.parent else self.stock()
        return Against(twin, parent, self.peaks, self.lane.tries, self.clock)

    def stock(self) -> Worker:
        """One more worker of the stock op."""
        path = self.folder / "stock.py"
        path.write_text(stock_source(self.task.op), encoding="utf-8")
        return self.started(path)

    def started(self, source: Path) -> Worker:
        worker = Trusted(self.open.enter_context(self.workers(source)))
        worker.build()
        return worker

    # --- the whole

    def step(self, stage: Stage) -> bool:
        """Run one stage; whether the next one is to follow."""
        start = self.clock()
        checked = self.checked(stage)
        self.costs.append(StageCost(stage, (self.clock() - start) / 1e9, checked.checked, checked.of))
        self.seen += checked
        return not any(finding.outcome in ENDS for finding in checked.findings)

    def checked(self, stage: Stage) -> Checked:
        run: Callable[[], Checked] = getattr(self, stage)
        try:
            return run()
        except Ended as ended:
            outcome: Outcome = "INFRA" if ended.reason in MACHINE else "FAIL"
            return Checked((failure(ended.reason, stage, ended.detail, None, outcome),))
        except Broken as broken:
            detail = f"a worker of ours ended: {broken.ended.detail}"
            return Checked((failure(broken.ended.reason, stage, detail, None, "INFRA"),))


def run_gate(
    task: Task,
    source: Path,
    parent: Path | None = None,
    *,
    workers: Workers,
    clock: Callable[[], int] = perf_counter_ns,
    seeds: Seeds = fresh_seed,
    lane: Lane = FIRST,
    peaks: Peaks | None = None,
    until: Stage = "holdout",
    say: Callable[[str], None] = lambda stage: None,
) -> Verdict:
    """Judge the candidate in `source`, against the stock op and the `parent` candidate where there is one.

    `workers` starts a process on a file (its device, limits and layer are bound); `say` is told each stage as it
    begins; `until` is the last stage. The verdict's environment is left empty. Raises QrprofError where a captured
    matrix of the task is gone.
    """
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    with few_threads(task), ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="qrprof-gate-")))
        run = Run(task, source, parent, workers, clock, seeds, lane, peaks, stack, folder)
        for stage in STAGES[: STAGES.index(until) + 1]:
            if stage == "holdout" and outcome_of(run.seen.findings) != "PASS":
                break
            say(stage)
            if not run.step(stage):
                break
        return verdict_on(run, sha256)


def verdict_on(run: Run, sha256: str) -> Verdict:
    """What a gate has come to on the candidate with this hash."""
    timed = run.timed
    return Verdict(
        id=f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{sha256[:8]}",
        task=run.task.id,
        candidate=sha256,
        outcome=outcome_of(run.seen.findings),
        findings=run.seen.findings,
        times=tuple(replace(time, peak_bytes=run.seen.peak_bytes.get(time.case)) for time in timed.times),
        costs=tuple(run.costs),
        layer=run.candidate.layer if run.candidate else "none",
        holdout_queries=run.queries,
        tries=run.lane.tries,
        skipped=tuple(f"{c.stage}: {c.of - c.checked} of {c.of} calls" for c in run.costs if c.checked < c.of),
        speedup=timed.speedup,
        over_parent=timed.over_parent,
        noise=timed.noise,
        needed=timed.needed,
    )


def outcome_of(findings: Sequence[Finding]) -> Outcome:
    """The worst of the findings'."""
    found = {finding.outcome for finding in findings}
    return next((outcome for outcome in WORST_FIRST if outcome in found), "PASS")


def fallback(timed: Timed, same_bits: bool) -> tuple[Finding, ...]:
    """The stock op's bits on every call, and not its betters in speed: the stock op by another name."""
    faster = timed.speedup and timed.needed and timed.speedup.low > timed.needed
    if not same_bits or faster:
        return ()
    outcomes = {finding.outcome for finding in timed.checked.findings}
    detail = "every bit of every answer is the stock op's, and no gain over it was shown"
    return (failure("fallback", "timing", detail, None, "FAIL" if "FAIL" in outcomes else "SUSPECT"),)


def answered(stock: Worker) -> Callable[[Arguments], tuple[Tensor, ...]]:
    def answer(args: Arguments) -> tuple[Tensor, ...]:
        call = stock.call([args]).calls[0]
        if call.error is not None:
            raise Broken(Ended("harness", f"the stock op raised {call.error}"))
        return call.outputs

    return answer
