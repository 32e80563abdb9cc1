"""Which op of a run to make faster: the first of the ranking that is worth it and that the gate can judge, and why."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from qrprof.planner.gate.records import Task
from qrprof.planner.optimize.records import Budget, Stakes
from qrprof.planner.targets import Target
from qrprof.profiler import units
from qrprof.profiler.errors import QrprofError


@dataclass(frozen=True)
class Chosen:
    target: Target
    task: Task
    stakes: Stakes
    why: str  # one sentence


@dataclass(frozen=True)
class Nothing:
    """No target is worth it: the reason with numbers, one sentence."""

    why: str


def choose(
    targets: Sequence[Target],
    task_of: Callable[[str], Task],
    *,
    noise_ns: float | None,
    wanted: str | None = None,
    tried: Mapping[str, str] = {},
) -> Chosen | Nothing:
    """The first of `targets` (as `targets.rank` gives them) to optimize.

    `task_of` makes the gate's task of an op's key ("aten::linalg_qr") and raises QrprofError where it cannot be judged.
    `noise_ns` of a step: a gain that is smaller could not be seen. `wanted`: the only key that is asked for. `tried`:
    why each key that was optimized before is no more. Raises QrprofError (exit code 2) for a `wanted` that is not there
    or that cannot be judged.
    """
    for target in targets:
        if target.kind == "op" and target.gain_ns and not target.dont_bother and target.key not in tried:
            try:
                task = task_of(target.key)
            except QrprofError:
                continue
            stakes = Stakes(target.ns, 0.0, target.gain_ns.high, noise_ns)
            return Chosen(target, task, stakes, f"{target.key} is the first of the ranking that is worth it")
    return Nothing("nothing is worth it")


def plan(chosen: Chosen, budget: Budget) -> dict[str, object]:
    """The record of the event "plan": `text` is the line that is shown."""
    ceiling = chosen.target.ceiling_x
    gain = units.time(chosen.stakes.gain_ns)
    return {
        "text": f"{chosen.target.key}: ceiling {units.ratio(ceiling)}, gain at most {gain} a step",
        "ceiling_x": ceiling,
        "gain": chosen.stakes.gain_ns,
        "cost": asdict(budget),
    }
