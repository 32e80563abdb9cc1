"""Hard inputs: the domain's structures and scales, its other shapes, and batches with one member unlike the others.

A batch that mixes two structures and is answered wrongly, where each of them alone is answered rightly, shows a kernel
that looks at a few members and treats all of them alike.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

import torch
from torch import Tensor

from qrprof.planner.gate.diagnose import HISTORY, with_cause
from qrprof.planner.gate.holdout import resize, restride, takes
from qrprof.planner.gate.judge import judged
from qrprof.planner.gate.records import TaskCase
from qrprof.planner.gate.replies import Arguments
from qrprof.planner.gate.sizes import fit, requests
from qrprof.planner.gate.trial import Checked, Input, Round, Trial, failure, tensors

Where = Literal["inside", "first"]
STAGE: Final = "adversarial"
NEAR: Final = 8  # neighbours
MIXTURES: Final = ("mixed", "single_bad", "one_bad")  # structures whose members are unlike
WHERE: Final[tuple[Where, ...]] = get_args(Where)


@dataclass(frozen=True)
class Hard:
    """An input to be drawn: of `case`, or a `usual` batch with one member of it."""

    case: TaskCase
    usual: TaskCase | None = None
    where: Where = "inside"


def adversarial(trial: Trial) -> Checked:
    """Every structure and scale at every case's shapes, alone and mixed in, in random order. Raises Ended."""
    near = [Hard(case) for case in neighbours(trial)]
    planned = near + [one for case in fit(trial.task) for one in hard(trial, case)]
    trial.rng.shuffle(planned)
    found, failing = Checked(), list[Round]()
    for request in requests(planned):
        round_ = trial.ask([drawn(trial, one) for one in request])
        checked = judged(trial.task, round_, STAGE)
        found += checked
        failing += [round_] if checked.failed else []
    found = with_cause(trial, found, failing, STAGE)
    if HISTORY & {finding.detector for finding in found.findings}:
        return found
    return found + mixed_batch(found, planned) + shape_dependent(found, near)


# --- what is asked


def neighbours(trial: Trial) -> list[TaskCase]:
    """Cases of other shapes and strides inside the domain, with the values that development has."""
    found = []
    for number in range(1, NEAR + 1):
        case = trial.rng.choice(fit(trial.task))
        near = replace(case, samples=(), held=(), name=f"near {case.name} #{number}")
        for change in (resize, restride):
            tried = change(near, trial.task, trial.rng)
            near = tried if takes(trial.task.op, tried) else near
        found.append(near)
    return found


def hard(trial: Trial, case: TaskCase) -> Iterator[Hard]:
    for other in varied(trial, case):
        yield Hard(other)
        if members(case, matrices=trial.task.checker == "qr") > 1:
            for where in WHERE:
                yield Hard(replace(other, name=f"{other.name}: one {where}"), case, where)


def varied(trial: Trial, case: TaskCase) -> Iterator[TaskCase]:
    """One case for each structure and each further scale of the domain."""
    domain = trial.task.domain
    for structure in domain.structures:
        yield replace(case, name=f"{case.name}, {structure}", structure=structure, samples=())
    for scale in domain.scales:
        if scale != 1:
            yield replace(case, name=f"{case.name}, times {scale:g}", scale=case.scale * scale, samples=())


def members(case: TaskCase, matrices: bool) -> int:
    """How many a batch has; 0: it is none."""
    shape = case.tensors[0].shape if case.tensors else ()
    return shape[0] if len(shape) > (2 if matrices else 1) else 0


def drawn(trial: Trial, one: Hard) -> Input:
    odd = trial.draw(one.case)
    if one.usual is None:
        return odd
    count = one.usual.tensors[0].shape[0]
    at = 0 if one.where == "first" else trial.rng.randrange(1, max(2, count - 1))
    return Input(one.case, spliced(trial.draw(one.usual).args, odd.args, at))


def spliced(into: Arguments, odd: Arguments, at: int) -> Arguments:
    """`into` with member `at` of every tensor of the batch taken from `odd`."""
    count = len(tensors(into)[0])

    def one(mine: object, other: object) -> object:
        if not isinstance(mine, Tensor) or not isinstance(other, Tensor) or mine.dim() < 2 or len(mine) != count:
            return mine
        out = torch.empty_strided(mine.shape, mine.stride(), dtype=mine.dtype, device=mine.device).copy_(mine)
        out[at] = other[at]
        return out

    return tuple(one(mine, other) for mine, other in zip(into, odd, strict=True))


# --- what it shows


def mixed_batch(found: Checked, planned: Sequence[Hard]) -> Checked:
    """What is wrong only where members are unlike."""
    failing = {finding.case for finding in found.findings if finding.detector == "wrong"}
    alike = {one.case.name for one in planned if one.usual is None and one.case.structure not in MIXTURES}
    if not failing or failing & alike:
        return Checked()
    detail = f"wrong in {len(failing)} batches whose members are unlike, and right where all are alike"
    return Checked((failure("mixed-batch", STAGE, detail, min(map(str, failing))),))


def shape_dependent(found: Checked, near: Sequence[Hard]) -> Checked:
    """What fails only at other shapes than those of development."""
    failing = {finding.case for finding in found.findings if finding.detector in ("wrong", "contract", "crash")}
    if not failing or failing - {one.case.name for one in near}:
        return Checked()
    detail = f"fails for {len(failing)} of {len(near)} other shapes and strides inside the domain, and for no values"
    return Checked((failure("shape-dependent", STAGE, detail, min(map(str, failing))),))
