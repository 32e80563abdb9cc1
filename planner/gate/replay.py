"""Answers that are kept, or that depend on how often and in which rhythm the candidate is called.

Timed and untimed calls look alike from inside: requests of a random number of calls of random cases, here as in the
timing. What is wrong only after other calls is wrong.
"""

from collections.abc import Iterator
from typing import Final

from qrprof.planner.gate.diagnose import with_cause
from qrprof.planner.gate.judge import judged
from qrprof.planner.gate.probes import probes
from qrprof.planner.gate.sizes import fit, requests
from qrprof.planner.gate.trial import Checked, Round, Trial

STAGE: Final = "replay"
REQUESTS = (10, 20)  # of a random run, from and to
CALLS = (1, 8)  # of one of its requests


def replay(trial: Trial) -> Checked:
    """Every case probed, then a random run; up to the first wrong answer. Raises Ended."""
    found = Checked()
    for round_ in asked(trial):
        found += judged(trial.task, round_, STAGE)
        if found.failed:
            return with_cause(trial, found, [round_], STAGE)
    return found


def asked(trial: Trial) -> Iterator[Round]:
    for case in trial.task.development:
        yield from (probe.round_ for probe in probes(trial, trial.candidate, case))
    cases = fit(trial.task)
    for _ in range(trial.rng.randint(*REQUESTS)):
        case = trial.rng.choice(cases)
        for request in requests([trial.draw(case) for _ in range(trial.rng.randint(*CALLS))]):
            yield trial.ask(request)
    yield trial.ask([trial.draw(trial.rng.choice(cases))], watch=True)  # what was changed since the contract stage
