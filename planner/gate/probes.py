"""Ways to find an answer that was kept instead of computed: the memory, one number or the place of an input changes.

Each probe is a request of its own, so that none looks like a burst of timed calls.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from qrprof.planner.gate.draw import laid_out, perturb
from qrprof.planner.gate.judge import is_right
from qrprof.planner.gate.records import ArgSpec, Detector, TaskCase
from qrprof.planner.gate.replies import Arguments, Worker
from qrprof.planner.gate.sizes import requests
from qrprof.planner.gate.trial import Asked, Input, Round, Trial, same_bits

CHANGES: Final = 2  # of each kind
OUTGROWN: Final = 5  # inputs at once for which the memory of single ones is too small: all later ones lie elsewhere
ATTEMPTS: Final = 20  # to find two numbers that differ


@dataclass(frozen=True)
class Probe:
    """A call that a kept answer would be given to; what that would mean, in a sentence."""

    detector: Detector
    detail: str
    before: Asked  # whose answer may have been kept
    round_: Round

    @property
    def after(self) -> Asked:
        return self.round_.asked[0]


def kept(trial: Trial, worker: Worker, case: TaskCase) -> Probe | None:
    """The first probe that is given the answer of the call before, wrongly. Raises Ended."""
    found = (
        probe
        for probe in probes(trial, worker, case)
        if same_bits(probe.after.call.outputs, probe.before.call.outputs) and misses(trial, probe.after)
    )
    return next(found, None)


def misses(trial: Trial, asked: Asked) -> bool:
    """Whether an answer was given, and a wrong one."""
    return asked.counts and asked.call.error is None and not is_right(trial.task, asked)


def probes(trial: Trial, worker: Worker, case: TaskCase) -> Iterator[Probe]:
    """Raises Ended."""
    first = trial.draw(case)
    before = trial.ask([first], worker=worker).asked[0]
    round_ = trial.ask([trial.draw(case)], worker=worker, again=True)
    yield Probe("stale-pointer", "the answer before came back when the same memory held other numbers", before, round_)
    trial.ask([first], worker=worker, again=True)  # so that the memory a graph was made on holds these numbers again
    several = [trial.draw(case) for _ in range(OUTGROWN)]
    if len(list(requests(several))) == 1:
        trial.ask(several, worker=worker)
        round_ = trial.ask([trial.draw(case)], worker=worker)
        yield Probe("graph-stale", "the answer before came back for other numbers in other memory", before, round_)
    trial.ask([first], worker=worker)
    for change, what in ((swapped, "two neighbouring numbers were swapped"), (one_changed, "one number was changed")):
        for _ in range(CHANGES):
            args = change(first.args, trial.rng)
            if args is not None:
                round_ = trial.ask([Input(case, args)], worker=worker)
                yield Probe("stale-content", f"the answer before came back when {what}", before, round_)


Change = Callable[[Arguments, random.Random], Arguments | None]


def one_changed(args: Arguments, rng: random.Random) -> Arguments | None:
    """One number, which a sample of the input would miss; None: there is no number to change."""
    given = tuple(args)
    found = perturb(given, rng.getrandbits(62))
    return None if found is given else found


def swapped(args: Arguments, rng: random.Random) -> Arguments | None:
    """Two neighbours in a row of one tensor, which sums and histograms of the input would miss; None: all are equal."""
    fit = [at for at, value in enumerate(args) if isinstance(value, Tensor) and value.dim() and value.shape[-1] > 1]
    fit = [at for at in fit if args[at].numel() and 0 not in args[at].stride()]
    if not fit:
        return None
    at = rng.choice(fit)
    new = copied(args[at])
    for _ in range(ATTEMPTS):
        row = tuple(rng.randrange(size) for size in new.shape[:-1])
        column = rng.randrange(new.shape[-1] - 1)
        left, right = new[(*row, column)].clone(), new[(*row, column + 1)].clone()
        if left != right:
            new[(*row, column)], new[(*row, column + 1)] = right, left
            return (*args[:at], new, *args[at + 1 :])
    return None


def copied(tensor: Tensor) -> Tensor:
    """In the same strides."""
    return laid_out(tensor, ArgSpec(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor.stride()))
