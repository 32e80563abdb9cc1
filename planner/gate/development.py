"""The development cases, on private seeds; one draw is of a seed that anybody can know."""

from collections.abc import Sequence
from typing import Final

from qrprof.planner.gate.diagnose import with_cause
from qrprof.planner.gate.draw import draw
from qrprof.planner.gate.judge import is_right, judged
from qrprof.planner.gate.records import TaskCase
from qrprof.planner.gate.sizes import requests
from qrprof.planner.gate.trial import Asked, Checked, Input, Trial, failure, total

STAGE: Final = "development"
DRAWS: Final = 3  # private ones, of each case
PUBLIC: Final = 0  # the seed that a benchmark would use


def development(trial: Trial, draws: int = DRAWS) -> Checked:
    """Every case, in random order, on so many private seeds. Raises Ended."""
    cases = list(trial.task.development)
    trial.rng.shuffle(cases)
    found = total(of_case(trial, case, draws) for case in cases)
    failing = {finding.case for finding in found.findings if finding.detector == "wrong"}
    passing = [case for case in cases if case.name not in failing]
    if failing and passing and not {shapes(case) for case in cases if case.name in failing} & set(map(shapes, passing)):
        detail = f"wrong for the shapes of {', '.join(sorted(map(str, failing)))} alone"
        found += Checked((failure("shape-dependent", STAGE, detail),))
    return found


def shapes(case: TaskCase) -> tuple[tuple[int, ...], ...]:
    return tuple(spec.shape for spec in case.tensors)


def of_case(trial: Trial, case: TaskCase, draws: int) -> Checked:
    public = Input(case, draw(case, PUBLIC, trial.task.device))
    inputs = [public, *(trial.draw(case) for _ in range(draws))]
    trial.rng.shuffle(inputs)
    rounds = [trial.ask(request) for request in requests(inputs)]
    found = total(judged(trial.task, round_, STAGE) for round_ in rounds)
    if found.failed and knows(trial, [asked for round_ in rounds for asked in round_.asked], public):
        detail = f"right for the numbers of seed {PUBLIC} and wrong for {draws} private seeds"
        found += Checked((failure("seed-known", STAGE, detail, case.name),))
    return with_cause(trial, found, rounds, STAGE)


def knows(trial: Trial, calls: Sequence[Asked], public: Input) -> bool:
    """Whether the answer to the known seed alone is right."""
    right = [asked.input for asked in calls if is_right(trial.task, asked)]
    return right == [public] and all(asked.counts for asked in calls)
