"""What is wrong with one call, beside the stock op's answer to the same inputs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from qrprof.planner.gate.check import check
from qrprof.planner.gate.records import Detector, Finding, Stage, Task
from qrprof.planner.gate.replies import TENSOR, Call, Seen, Sign
from qrprof.planner.gate.trial import Asked, Checked, Round, failure, same_bits


def judged(task: Task, round_: Round, stage: Stage) -> Checked:
    """All calls of a request. Calls whose inputs the stock op refuses are not counted."""
    counting = [asked for asked in round_.asked if asked.counts]
    found = list(signed(round_.reply.signs, stage, None))
    found += [finding for asked in counting for finding in misformed(asked, stage)]
    formed = [asked for asked in counting if asked.call.error is None and not any(form(asked.call, asked.stock))]
    differing = [asked for asked in formed if not same_bits(asked.call.outputs, asked.stock.outputs)]
    found += wrong_of(task, differing, stage)
    return Checked(tuple(found), len(counting), len(round_.asked), len(formed) == len(counting) and not differing)


def misformed(asked: Asked, stage: Stage) -> list[Finding]:
    """What is wrong with one call but for its values: those are judged only where outputs have the stock op's form."""
    call, case = asked.call, asked.case.name
    if call.error is not None:
        return [failure("crash", stage, f"the candidate raised {call.error}", case)]
    changed = [failure("mutated-input", stage, f"argument {at} was changed by the call", case) for at in call.mutated]
    signs = (*call.signs, *shared(call, asked.stock), *form(call, asked.stock))
    return [*changed, *signed(signs, stage, case)]


def wrong_of(task: Task, calls: Sequence[Asked], stage: Stage) -> list[Finding]:
    """Findings of the values of many calls: of all in one batch where the checker can, and singly where that fails."""
    if task.checker == "qr" and len(calls) > 1 and len({form_of(asked) for asked in calls}) == 1:
        first = calls[0]
        args = tuple(map(stacked, zip(*(asked.input.args for asked in calls), strict=True)))
        ours, stock = (
            [torch.stack(outputs) for outputs in zip(*outputs_of, strict=True)]
            for outputs_of in ([asked.call.outputs for asked in calls], [asked.stock.outputs for asked in calls])
        )
        if not check(task, first.case, args, ours, stock, stage):
            return []
    return [finding for asked in calls for finding in wrong(task, asked, stage)]


def form_of(asked: Asked) -> tuple[object, ...]:
    return tuple((value.shape, value.dtype) if isinstance(value, Tensor) else value for value in asked.input.args)


def stacked(values: Sequence[Any]) -> Any:
    return torch.stack(list(values)) if isinstance(values[0], Tensor) else values[0]


def wrong(task: Task, asked: Asked, stage: Stage) -> list[Finding]:
    """Findings of one call's values."""
    call, stock = asked.call, asked.stock
    if same_bits(call.outputs, stock.outputs):
        return []
    return check(task, asked.case, asked.input.args, call.outputs, stock.outputs, stage)


def is_right(task: Task, asked: Asked) -> bool:
    """Whether the call gave the right values, in the right form."""
    call, stock = asked.call, asked.stock
    return call.error is None and not any(form(call, stock)) and not wrong(task, asked, "replay")


def signed(signs: Iterable[Sign], stage: Stage, case: str | None) -> Iterator[Finding]:
    return (failure(sign.detector, stage, sign.detail, case) for sign in signs)


def form(call: Call, stock: Call) -> Iterator[Sign]:
    """Where outputs are not what the stock op's are: in number, kind, dtype, shape, strides, device, or gradient."""
    if len(call.seen) != len(stock.seen):
        yield Sign("contract", f"{len(call.seen)} outputs where the stock op has {len(stock.seen)}")
        return
    for at, (ours, theirs) in enumerate(zip(call.seen, stock.seen, strict=True)):
        if ours.kind != TENSOR:
            yield Sign("not-a-tensor", f"output {at} is {ours.kind}, not a plain tensor with a storage of its own")
            continue
        for what in ("dtype", "shape", "device"):
            if getattr(ours, what) != getattr(theirs, what):
                yield Sign("contract", f"output {at} has {what} {getattr(ours, what)}, not {getattr(theirs, what)}")
        if ours.shape == theirs.shape and not same_steps(ours, theirs):
            yield Sign("contract", f"output {at} of shape {ours.shape} has strides {ours.stride}, not {theirs.stride}")
        if ours.requires_grad:
            yield Sign("autograd", f"output {at} requires grad, below autograd where no graph may be recorded")


def same_steps(ours: Seen, theirs: Seen) -> bool:
    """Strides agree where they matter: along more than one number."""
    if 0 in ours.shape:
        return True
    along = [axis for axis, size in enumerate(ours.shape) if size > 1]
    return all(ours.stride[axis] == theirs.stride[axis] for axis in along)


def shared(call: Call, stock: Call) -> Iterator[Sign]:
    """Memory that outputs share with what is not theirs, where the stock op's do not."""
    for at, seen in enumerate(call.seen):
        usual = stock.seen[at].shares if at < len(stock.seen) else ()
        for whose in seen.shares:
            if whose in usual:
                continue
            detector: Detector = "reused-output" if "of call" in whose else "aliases-input"
            yield Sign(detector, f"output {at} shares memory with {whose}")
