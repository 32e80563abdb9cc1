"""A more specific name for a wrong answer, found by asking new processes the same and the like."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import torch

from qrprof.planner.gate.judge import is_right
from qrprof.planner.gate.probes import kept, misses
from qrprof.planner.gate.records import Detector, Finding, Stage
from qrprof.planner.gate.replies import Call, Ended, Worker
from qrprof.planner.gate.trial import Asked, Checked, Round, Trial, failure, same_bits, tensors

# What names an answer that is wrong for what came before it, whatever the input is.
HISTORY: Final[frozenset[Detector]] = frozenset(
    {"phase", "reused-output", "stale-pointer", "stale-content", "graph-stale"}
)


def with_cause(trial: Trial, checked: Checked, rounds: Iterable[Round], stage: Stage) -> Checked:
    """The findings, and where answers are wrong the cause of the first wrong one, if it can be named."""
    names = {finding.case for finding in checked.findings if finding.detector == "wrong"}
    if not names:
        return checked
    first = next(
        (
            (round_, asked)
            for round_ in rounds
            for asked in round_.asked
            if asked.case.name in names and misses(trial, asked)
        ),
        None,
    )
    return replace(checked, findings=checked.findings + cause(trial, *first, stage)) if first else checked


def cause(trial: Trial, round_: Round, asked: Asked, stage: Stage) -> tuple[Finding, ...]:
    """Ask a new process the same call alone: what is right there depends on what came before."""
    case = asked.case.name
    try:
        with trial.fresh() as worker:
            alone = trial.ask([asked.input], worker=worker).asked[0]
            if not is_right(trial.task, alone):
                named = null(trial, worker, alone)
                return (failure(named[0], stage, named[1], case),) if named else ()
            if overwritten(trial, round_, asked):
                detail = "the output became that of a later call, and was right in a process that called once"
                return (failure("reused-output", stage, detail, case),)
        with trial.fresh() as worker:
            probe = kept(trial, worker, asked.case)
    except Ended as ended:
        return (failure(ended.reason, stage, f"a new process with the same input ended: {ended.detail}", case),)
    if probe:
        return (failure(probe.detector, stage, probe.detail, case),)
    detail = "the same input gave a right answer in a new process, and a wrong one after other calls"
    return (failure("phase", stage, detail, case),)


def overwritten(trial: Trial, round_: Round, asked: Asked) -> bool:
    """Whether an output has the bits of a later one, which is the right answer to another input."""
    later = round_.asked[round_.asked.index(asked) + 1 :]
    alike = [one for one in later if same_bits(asked.call.outputs, one.call.outputs)]
    return any(is_right(trial.task, one) for one in alike)


def null(trial: Trial, worker: Worker, alone: Asked) -> tuple[Detector, str] | None:
    """Whether the answer needs no computing: a constant, an input, or the same for whatever input."""
    if constant(alone.call):
        return "null-answer", "every output is one number throughout"
    inputs = tensors(alone.input.args)
    if any(same_bits([output], [value]) for output in alone.call.outputs for value in inputs):
        return "null-answer", "an output is an input, number for number"
    other = trial.ask([trial.draw(alone.case)], worker=worker).asked[0]
    if same_bits(other.call.outputs, alone.call.outputs) and not same_bits(other.stock.outputs, alone.stock.outputs):
        return "insensitive", "two inputs that have different answers were given the same one"
    return None


def constant(call: Call) -> bool:
    return all(bool(torch.all(output == output.reshape(-1)[0])) for output in call.outputs if output.numel())
