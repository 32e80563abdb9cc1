"""Whether a task can be judged at all: an answer that needs no computing must fail, another input must be noticed."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from qrprof.planner.gate.check import Args, check, stock
from qrprof.planner.gate.draw import draw, fresh_seed, perturb
from qrprof.planner.gate.records import Finding, Task, TaskCase
from qrprof.profiler.errors import Exit, QrprofError

CHANGES: Final = 8  # numbers changed, one at a time, until a change is noticed: relu ignores half of them
Outputs = tuple[Tensor, ...]
Answer = Callable[[Args], Outputs]
Seeds = Callable[[], int]


def weaknesses(task: Task, answer: Answer, seeds: Seeds = fresh_seed) -> list[Finding]:
    """UNKNOWN findings, "null-answer" or "insensitive", for the cases on which any candidate might pass.

    `answer` is the stock op, in this process or in another. Raises what it raises.
    """
    found = []
    for case in task.development:
        found += weaknesses_of(task, case, answer, seeds)
    return found


def weaknesses_of(task: Task, case: TaskCase, answer: Answer, seeds: Seeds) -> list[Finding]:
    args, other = (draw(case, seeds(), task.device) for _ in range(2))
    outputs, previous = answer(args), answer(other)
    passing = [
        name
        for name, null in null_answers(args, outputs, previous)
        if not check(task, case, args, null, outputs, "null")
    ]
    found = []
    if passing:
        detail = f"the checks accept {' and '.join(passing)} for an answer; no candidate can be judged by this case"
        found.append(Finding("null-answer", "UNKNOWN", case.name, detail, "null"))
    if not notices(task, case, args, outputs, answer, seeds):
        detail = (
            f"{CHANGES} changes of one number of the input were not noticed; no candidate can be judged by this case"
        )
        found.append(Finding("insensitive", "UNKNOWN", case.name, detail, "null"))
    return found


def null_answers(args: Args, outputs: Outputs, previous: Outputs) -> Iterator[tuple[str, Outputs]]:
    """What a candidate might return without computing anything of `args`, each in the form of the right outputs."""
    yield "zeros", tuple(torch.zeros_like(one) for one in outputs)
    yield "ones", tuple(torch.ones_like(one) for one in outputs)
    yield "NaN", tuple(torch.full_like(one, torch.nan) if one.is_floating_point() else one for one in outputs)
    yield "the answer to another input", previous
    if any(one.numel() > 1 for one in outputs):
        yield "the mean of the right answer", tuple(averaged(one) for one in outputs)
    if (same := unchanged(args, outputs)) is not None:
        yield "the input", same


def averaged(one: Tensor) -> Tensor:
    """The mean everywhere; of integers the first one."""
    if one.is_floating_point():
        return one.double().mean().to(one.dtype).expand_as(one)
    return one.flatten()[:1].reshape([1] * one.dim()).expand_as(one)


def unchanged(args: Args, outputs: Outputs) -> Outputs | None:
    """An input as the first output, zeros as the others; None where no input has its form."""
    first, *others = outputs
    alike = (x for x in args if isinstance(x, Tensor) and x.shape == first.shape and x.dtype == first.dtype)
    found = next(alike, None)
    return None if found is None else (found, *(torch.zeros_like(one) for one in others))


def notices(task: Task, case: TaskCase, args: Args, outputs: Outputs, answer: Answer, seeds: Seeds) -> bool:
    """Whether the answer to `args` is wrong once some number of them is another."""
    for _ in range(CHANGES):
        changed = perturb(tuple(args), seeds())
        if check(task, case, changed, outputs, answer(changed), "null"):
            return True
    return False


def require_judgeable(task: Task, most: int) -> Task:
    """The task, once its smallest case has shown in this process that it can be judged; on a CPU where there is no GPU.

    A case of more than `most` numbers is left to the gate. Raises QrprofError (exit code 2): the stock op does not take
    the drawn inputs, has no form in float64, or the case accepts a null answer or notices no change.
    """
    here = task if torch.cuda.is_available() else replace(task, device="cpu")
    case = min(task.development, key=numbers)
    if numbers(case) > most:
        return task
    try:
        found = weaknesses_of(here, case, lambda args: stock(here, args), fresh_seed)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise QrprofError(
            f"no task for aten::{task.op}: of drawn inputs torch says {reason!r} (case {case.name})", Exit.USAGE
        ) from None
    if found:
        raise QrprofError(f"no task for aten::{task.op}: {found[0].detail} ({case.name})", Exit.USAGE)
    return task


def numbers(case: TaskCase) -> int:
    return sum(spec.elements for spec in case.tensors)
