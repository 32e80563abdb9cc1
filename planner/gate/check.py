"""The checker of a task: what is wrong with a candidate's outputs, held against float64 and the stock op's."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from torch import Tensor

from qrprof.planner.gate import aten_task, qr_task
from qrprof.planner.gate.records import Detector, Finding, Plain, Stage, Task, TaskCase
from qrprof.planner.gate.relative import Miss, expect, miss, plainly_right

SHOWN: Final = 3  # reasons of one verdict
Args = Sequence[Tensor | Plain]


def stock(task: Task, args: Args) -> tuple[Tensor, ...]:
    """The stock op's outputs, computed in this process. Raises what torch raises."""
    return aten_task.call(task.op, args)


def check(
    task: Task,
    case: TaskCase,
    args: Args,
    outputs: Sequence[Tensor],
    stock_outputs: Sequence[Tensor],
    stage: Stage = "development",
) -> list[Finding]:
    """FAIL findings for the outputs of one call: "contract" or "wrong"; none where they are right.

    All are on the task's device. Raises what torch raises where the op does not take `args`.
    """

    def failure(detector: Detector, detail: str) -> Finding:
        return Finding(detector, "FAIL", case.name, detail, stage)

    if problem := misformed(outputs, stock_outputs):
        return [failure("contract", problem)]
    if task.checker == "qr":
        reasons = qr_task.judge(task.op, args, outputs, stock_outputs).reasons
        return [failure("wrong", "; ".join(map(str, reasons[:SHOWN])))] if reasons else []
    return [
        failure("wrong", f"output {number}: {found}") for number, found in misses(task, args, outputs, stock_outputs)
    ]


def misses(
    task: Task, args: Args, outputs: Sequence[Tensor], stock_outputs: Sequence[Tensor]
) -> Iterator[tuple[int, Miss]]:
    """The outputs that are not as near to float64 as they must be, each with its worst number."""
    op = partial(aten_task.reference, task.op)
    values = op(args)
    beside = list(zip(outputs, stock_outputs, values, strict=True))
    if all(plainly_right(*three, task.tolerance) for three in beside):
        return
    expected = expect(op, args, values, [one.dtype for one in stock_outputs])
    for number, three in enumerate(zip(outputs, stock_outputs, expected, strict=True)):
        if found := miss(*three, task.tolerance):
            yield number, found


def misformed(outputs: Sequence[Tensor], stock_outputs: Sequence[Tensor]) -> str:
    """How the number, shapes or dtypes of outputs are not the stock op's; "" where they are."""
    if len(outputs) != len(stock_outputs):
        return f"{len(outputs)} outputs, the stock op has {len(stock_outputs)}"
    for number, (one, other) in enumerate(zip(outputs, stock_outputs, strict=True)):
        ours, theirs = ((tuple(x.shape), str(x.dtype).removeprefix("torch.")) for x in (one, other))
        if ours != theirs:
            return f"output {number} is {ours[0]} {ours[1]}, the stock op's is {theirs[0]} {theirs[1]}"
    return ""
