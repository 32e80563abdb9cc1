"""What an optimization suggests in the end: a file, the verdict on it, and what the program's step would gain."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from qrprof.planner.estimate import Basis, Estimate
from qrprof.planner.gate import evidence
from qrprof.planner.gate.records import Interval, Task, Verdict
from qrprof.planner.optimize.journal import Journal
from qrprof.planner.predictions import Forecast, forecast
from qrprof.planner.replay.levers import find_levers
from qrprof.planner.swaps.publish import write_candidate
from qrprof.profiler import units
from qrprof.tui.commands.verdict import between
from qrprof.tui.output import clean, field, title
from qrprof.tui.proposing import propose_file
from qrprof.tui.ranking import Ranking, short, to_ms


@dataclass(frozen=True)
class Suggestion:
    optimization: str
    file: Path
    verdict: Verdict
    speedup: Interval  # over the stock op
    step_ns: float | None  # now; None: not measured, or no run
    step: Estimate | None  # with it; None: not known
    swap: str  # the name under which it can be accepted; "": it cannot


def suggestion_of(journal: Journal, optimization: str, verdict: str, ranking: Ranking | None, root: Path) -> Suggestion:
    """Write the candidate's file where it is found again, and propose it as a swap.

    Raises QrprofError where the file cannot be written.
    """
    with journal.connect() as connection:
        kept = evidence.find(connection, verdict)
    found = kept.verdict
    candidate = next(one for one in journal.candidates(optimization) if one.sha256 == found.candidate)
    start = journal.start(optimization)
    assert found.speedup is not None
    step = step_with(ranking, start.target, start.task, found.speedup) if ranking and start.target else None
    now = ranking.partition.step_ns if ranking else None
    file = write_candidate(root, found.candidate, candidate.proposal.source)
    swap = propose_file(start.task, candidate.proposal.source.encode(), kept)
    return Suggestion(optimization, file, found, found.speedup, now, step, swap)


def step_with(ranking: Ranking, key: str, task: Task, speedup: Interval) -> Estimate | None:
    """The mean step if the task's calls took as much less; by replay where there is one. None: no step was measured."""
    step = ranking.partition.step_ns
    target = next((one for one in ranking.targets if one.key == key), None)
    if step is None or target is None or target.ns <= 0 or ranking.partition.withheld:
        return None
    levers = find_levers(ranking.model) if ranking.model.withheld is None else None
    of_task = min(task.step_ns if task.step_ns is not None else target.ns, target.ns)

    def left(x: float) -> float:
        saved = of_task * (1 - 1 / x)
        by_replay = levers.gain(key, 1 - saved / target.ns) if levers and saved > 0 else None
        return min(step, max(0.0, step - (saved if by_replay is None else by_replay)))

    low, mid, high = sorted(left(x) for x in (speedup.low, speedup.mid, speedup.high))
    return Estimate(low, mid, high, Basis.MEASURED)


def predicted(made: Suggestion, ranking: Ranking, key: str) -> list[Forecast]:
    """What is to be remembered; nothing where no gain is known."""
    if made.step is None or made.step_ns is None:
        return []
    scenario = clean(f"{short(key)}=candidate {made.file.stem}")
    return [forecast(ranking.run, "optimize", scenario, made.step_ns, made.step)]


# --- shown


def page(made: Suggestion) -> list[RenderableType]:
    lines: list[RenderableType] = [
        title(f"Suggestion: {between(made.speedup)} the speed of the stock op"),
        field("file", str(made.file)),
        field("verdict", f"{made.verdict.id}: `qrprof verdict {made.verdict.id}` shows the evidence"),
    ]
    if made.step is not None and made.step_ns is not None:
        ends = f"{units.time(made.step.low)} to {units.time(made.step.high)}"
        ratio = units.ratio(made.step_ns / made.step.mid) if made.step.mid else units.MISSING
        lines.append(field("step", f"{units.time(made.step_ns)} -> {units.time(made.step.mid)} ({ends}), {ratio}"))
    if made.swap:
        lines.append(field("run it", f"`qrprof swaps accept {made.swap}` shows its source, and asks"))
    return [*lines, field("history", f"`qrprof history {made.optimization}`")]


def record(made: Suggestion) -> dict[str, Any]:
    step = made.step
    return {
        "optimization": made.optimization,
        "file": str(made.file),
        "verdict": made.verdict.id,
        "sha256": made.verdict.candidate,
        "swap": made.swap or None,
        "speedup": asdict(made.speedup),
        "step_ms": to_ms(made.step_ns),
        "with_ms": {"low": to_ms(step.low), "mid": to_ms(step.mid), "high": to_ms(step.high)} if step else None,
    }
