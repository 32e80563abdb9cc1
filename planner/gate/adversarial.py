"""Hard inputs: the domain's structures and scales, its other shapes, and batches with one member unlike the others.

A batch that mixes two structures and is answered wrongly, where each of them alone is answered rightly, shows a kernel
that looks at a few members and treats all of them alike.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import torch
from torch import Tensor

from qrprof.planner.gate.diagnose import with_cause
from qrprof.planner.gate.holdout import resize, restride, takes
from qrprof.planner.gate.judge import judged
from qrprof.planner.gate.records import TaskCase
from qrprof.planner.gate.replies import Arguments
from qrprof.planner.gate.trial import Checked, Input, Trial, failure, tensors, total

STAGE: Final = "adversarial"
LARGE: Final = 1 << 21  # elements: of a larger case only the smallest of the task is asked
NEAR: Final = 8  # neighbours
REQUEST: Final = 16  # calls at most in one
REQUEST_ELEMENTS: Final = 1 << 22
MIXED: Final = "mixed"
MIXTURES: Final = (MIXED, "single_bad", "one_bad")  # structures whose members are unlike


def adversarial(trial: Trial) -> Checked:
    """Every structure and scale at every case's shapes, alone and mixed in, in random order. Raises Ended."""
    near = [trial.draw(case) for case in neighbours(trial)]
    inputs = near + [one for case in fit(trial.task.development) for one in hard(trial, case)]
    trial.rng.shuffle(inputs)
    rounds = [trial.ask(request) for request in requests(inputs)]
    found = total(judged(trial.task, round_, STAGE) for round_ in rounds)
    found += mixed_batch(found, inputs) + shape_dependent(found, near)
    return with_cause(trial, found, rounds, STAGE)


def neighbours(trial: Trial) -> list[TaskCase]:
    """Cases of other shapes and strides inside the domain, with the values that development has."""
    found = []
    for number in range(1, NEAR + 1):
        case = trial.rng.choice(fit(trial.task.development))
        near = replace(case, samples=(), held=(), name=f"near {case.name} #{number}")
        for change in (resize, restride):
            tried = change(near, trial.task, trial.rng)
            near = tried if takes(trial.task.op, tried) else near
        found.append(near)
    return found


def hard(trial: Trial, case: TaskCase) -> Iterator[Input]:
    for other in varied(trial, case):
        yield trial.draw(other)
        yield from mixtures(trial, case, other)


def fit(cases: Sequence[TaskCase]) -> list[TaskCase]:
    """The cases that are not large, or the smallest."""
    small = [case for case in cases if elements(case) <= LARGE]
    return small or [min(cases, key=elements)]


def elements(case: TaskCase) -> int:
    return sum(spec.elements for spec in case.tensors)


def varied(trial: Trial, case: TaskCase) -> Iterator[TaskCase]:
    """One case for each structure and each further scale of the domain."""
    domain = trial.task.domain
    for structure in domain.structures:
        yield replace(case, name=f"{case.name}, {structure}", structure=structure, samples=())
    for scale in domain.scales:
        if scale != 1:
            yield replace(case, name=f"{case.name}, times {scale:g}", scale=case.scale * scale, samples=())


def mixtures(trial: Trial, usual: TaskCase, other: TaskCase) -> Iterator[Input]:
    """The usual batch with one member of the other inside, and with one before all others."""
    for where in ("inside", "first"):
        into, odd = trial.draw(usual).args, trial.draw(other).args
        members = mixable(into, matrices=trial.task.checker == "qr")
        if members > 1:
            at = 0 if where == "first" else trial.rng.randrange(1, max(2, members - 1))
            name = f"{other.name}: one {where}"
            yield Input(replace(other, name=name, structure=MIXED), spliced(into, odd, at))


def mixable(args: Arguments, matrices: bool) -> int:
    """How many members a batch has; 0: it is none."""
    given = tensors(args)
    return given[0].shape[0] if given and given[0].dim() > (2 if matrices else 1) else 0


def spliced(into: Arguments, odd: Arguments, at: int) -> Arguments:
    """`into` with member `at` of every tensor of the batch taken from `odd`."""
    members = tensors(into)[0].shape[0]

    def one(mine: object, other: object) -> object:
        if not isinstance(mine, Tensor) or not isinstance(other, Tensor) or mine.dim() < 2 or len(mine) != members:
            return mine
        out = torch.empty_strided(mine.shape, mine.stride(), dtype=mine.dtype, device=mine.device).copy_(mine)
        out[at] = other[at]
        return out

    return tuple(one(mine, other) for mine, other in zip(into, odd, strict=True))


def requests(inputs: Sequence[Input]) -> Iterator[list[Input]]:
    """In order, a request each: not too many calls, and not too many numbers."""
    waiting = iter(inputs)
    while request := list(islice(waiting, 1)):
        held = elements(request[0].case)
        while len(request) < REQUEST and held < REQUEST_ELEMENTS and (more := list(islice(waiting, 1))):
            request += more
            held += elements(more[0].case)
        yield request


def mixed_batch(found: Checked, inputs: Sequence[Input]) -> Checked:
    """What is wrong only where members are unlike."""
    failing = {finding.case for finding in found.findings if finding.detector == "wrong"}
    alike = {one.case.name for one in inputs if one.case.structure not in MIXTURES}
    if not failing or failing & alike:
        return Checked()
    detail = f"wrong in {len(failing)} batches whose members are unlike, and right where all are alike"
    return Checked((failure("mixed-batch", STAGE, detail, min(map(str, failing))),))


def shape_dependent(found: Checked, near: Sequence[Input]) -> Checked:
    """What is wrong only at other shapes than those of development."""
    failing = {finding.case for finding in found.findings if finding.detector in ("wrong", "contract", "crash")}
    if not failing or failing - {one.case.name for one in near}:
        return Checked()
    detail = f"fails for {len(failing)} of {len(near)} other shapes and strides inside the domain, and for no values"
    return Checked((failure("shape-dependent", STAGE, detail, min(map(str, failing))),))
