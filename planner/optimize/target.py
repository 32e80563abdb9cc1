"""Which op of a run to make faster: the first of the ranking that is worth it and that the gate can judge, and why."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from qrprof.planner.counts import ELEMENTWISE
from qrprof.planner.gate.records import Task
from qrprof.planner.optimize.budget import texts
from qrprof.planner.optimize.records import Budget, ProposerName, Stakes, Usage
from qrprof.planner.targets import Target
from qrprof.profiler import units
from qrprof.profiler.errors import Exit, QrprofError

WORTH: Final = 0.05  # of a step: a smaller gain does not pay for a kernel of one's own
NEAREST: Final = 3
SHOWN: Final = 3  # reasons

TaskOf = Callable[[str], Task]  # of an op's key; raises QrprofError where the gate cannot judge it


@dataclass(frozen=True)
class Step:
    """A mean step of the run."""

    ns: float
    noise: float | None  # a fraction of it; None: not measured

    @property
    def seen_ns(self) -> float:
        """A gain that is smaller could not be told from noise."""
        return 2 * (self.noise or 0.0) * self.ns


@dataclass(frozen=True)
class Chosen:
    target: Target
    task: Task
    stakes: Stakes | None  # None: what it could gain is not known
    why: str  # one sentence


@dataclass(frozen=True)
class Nothing:
    """No target is worth it; `why` is one sentence with numbers."""

    why: str


def choose(
    targets: Sequence[Target], task_of: TaskOf, step: Step, tried: Mapping[str, str] | None = None
) -> Chosen | Nothing:
    """The first of `targets` (as `targets.rank` gives them) that is an op, worth it, and can be judged.

    `tried`: why each key that was optimized before is no more.
    """
    passed_over: list[str] = []
    for target in targets:
        reason = (tried or {}).get(target.key) or unworthy(target, step)
        if not reason:
            try:
                task = task_of(target.key)
            except QrprofError as refused:
                reason = f"{likely(target, step)}, but {refused}"
            else:
                return Chosen(target, task, stakes(target, step), because(target, step, passed_over))
        passed_over.append(f"{name(target)}: {reason}")
    return Nothing("nothing is worth it; " + "; ".join(passed_over[:SHOWN] or ["the run has no targets"]))


def wanted(targets: Sequence[Target], key: str, task_of: TaskOf, step: Step) -> Chosen:
    """The target that a person asks for, worth it or not.

    Raises QrprofError (exit code 2) where there is none of this key, it is no op, or it cannot be judged.
    """
    keys = {target.key: target for target in targets}
    found = keys.get(key) or keys.get(f"aten::{key}")
    if found is None:
        near = ", ".join(difflib.get_close_matches(key, keys, n=NEAREST)) or "none"
        raise QrprofError(f"the run has no target {key!r}; nearest: {near}; list all with `qrprof rank`", Exit.USAGE)
    if found.kind != "op":
        raise QrprofError(f"{found.key} is no op that a kernel could replace: {found.advice}", Exit.USAGE)
    reason = unworthy(found, step)
    why = f"{name(found)} was asked for" + (f", though {reason}" if reason else "")
    return Chosen(found, task_of(found.key), stakes(found, step), why)


# --- worth it


def unworthy(target: Target, step: Step) -> str:
    """Why not to bother with a target; "" where it is worth it."""
    gain = target.gain_ns
    if target.kind != "op":
        return f"no op; {target.advice}"
    if target.dont_bother is not None:
        return target.dont_bother
    if gain is None:
        return "its times are not comparable with a step"
    if gain.mid is None:
        most = f"{units.time(gain.high)} of {units.time(step.ns)} a step"
        return f"nothing but its ceiling is known, {most}; `qrprof doctor --measure` may tell more"
    if gain.mid < max(WORTH * step.ns, step.seen_ns):
        return (
            f"{likely(target, step)}, and less than {units.share(max(WORTH, step.seen_ns / step.ns))} is not worth it"
        )
    if target.key.removeprefix("aten::").strip("_") in ELEMENTWISE:
        return f"elementwise; {target.advice}"
    return ""


def likely(target: Target, step: Step) -> str:
    gain = target.gain_ns
    assert gain is not None
    middle = gain.high / 2 if gain.mid is None else gain.mid
    return f"its likely gain is {units.time(middle)} of {units.time(step.ns)} a step, {units.share(middle / step.ns)}"


def because(target: Target, step: Step, passed_over: Sequence[str]) -> str:
    why = f"{name(target)} comes first: {likely(target, step)}, its ceiling {units.ratio(target.ceiling_x)}"
    return "; ".join([why, *(f"before it {text}" for text in passed_over[:SHOWN])])


def name(target: Target) -> str:
    return target.key.removeprefix("aten::")


def stakes(target: Target, step: Step) -> Stakes | None:
    """What the step can gain by it. A gain that is too small ends an optimization, so the highest estimate counts."""
    gain, left = target.gain_ns, target.achievable_ns
    if gain is None or left is None:
        return None
    return Stakes(target.ns, left.low, gain.high, step.seen_ns if step.noise is not None else None)


# --- the plan


def plan(chosen: Chosen, step: Step, budget: Budget, proposer: ProposerName) -> dict[str, object]:
    """The record of the event "plan": ceiling, likely gain, likely cost. `text` says it in one line."""
    target = chosen.target
    gain = likely(target, step) if target.gain_ns else "its gain is not known"
    ceiling = f"at most the step becomes {units.ratio(target.ceiling_x)} as fast"
    return {
        "text": f"{name(target)}: {ceiling}, {gain}; it may cost {most(budget, proposer)}",
        "ceiling_x": target.ceiling_x,
        "gain": asdict(target.gain_ns) if target.gain_ns else None,
        "cost": asdict(budget),
    }


def alone(budget: Budget, proposer: ProposerName) -> dict[str, object]:
    """The same of a task without a run."""
    text = f"what a program would gain is not known without a run; it may cost {most(budget, proposer)}"
    return {"text": text, "ceiling_x": None, "gain": None, "cost": asdict(budget)}


def most(budget: Budget, proposer: ProposerName) -> str:
    limits = texts(budget if proposer == "llm" else without_model(budget), Usage(requests=1))
    return ", ".join(limits) or "no limits"


def without_model(budget: Budget) -> Budget:
    return Budget(budget.seconds, budget.evaluations, None, None, budget.gpu_seconds)
