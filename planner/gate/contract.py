"""The contract: outputs of the stock op's form, inputs and the process left as they were, memory within bounds.

Each case is asked with the worker watching. What a single call shows is `judge`'s; here is what a request shows.
"""

from collections.abc import Iterator
from typing import Final

from qrprof.planner.gate.diagnose import with_cause
from qrprof.planner.gate.judge import judged
from qrprof.planner.gate.records import Finding, TaskCase
from qrprof.planner.gate.trial import Checked, Round, Trial, failure, tensors, total
from qrprof.profiler.units import size

STAGE: Final = "contract"
CALLS: Final = 2  # a request: for the second, the worker knows how large outputs are, and poisons free memory
TIMES: Final = 4.0  # the memory that the stock op or the arguments take
SLACK: Final = 64 << 20  # bytes; what a process holds is not known to a page


def contract(trial: Trial) -> Checked:
    """Every development case, watched. Raises Ended."""
    return total(of_case(trial, case) for case in trial.task.development)


def of_case(trial: Trial, case: TaskCase) -> Checked:
    round_ = trial.ask([trial.draw(case) for _ in range(CALLS)], watch=True)
    peak = round_.reply.peak_bytes
    known = {} if peak is None else {case.name: peak}
    found = judged(trial.task, round_, STAGE)
    found += Checked((*memory(round_, case), *engagement(trial, round_, case)), peak_bytes=known)
    return with_cause(trial, found, [round_], STAGE)


def memory(round_: Round, case: TaskCase) -> Iterator[Finding]:
    if round_.reply.peak_bytes is None:
        return
    asked = round_.asked[0]
    moved = sum(tensor.nbytes for tensor in (*tensors(asked.input.args), *asked.stock.outputs))
    allowed = TIMES * max(round_.stock.peak_bytes or 0, moved) + SLACK
    if round_.reply.peak_bytes > allowed:
        detail = (
            f"a call took up to {size(round_.reply.peak_bytes)} of memory, one of the stock op "
            f"{size(round_.stock.peak_bytes)}; allowed are {size(allowed)}"
        )
        yield failure("memory", STAGE, detail, case.name)


def engagement(trial: Trial, round_: Round, case: TaskCase) -> Iterator[Finding]:
    """On a GPU: whose kernels ran."""
    ran, declared = round_.reply.kernels, trial.built.kernels
    if ran is None:
        return
    if declared and not any(own in name for own in declared for name in ran):
        detail = f"none of the file's KERNELS ran: {', '.join(declared)}"
        yield failure("fallback", STAGE, detail, case.name)
    library = set(round_.stock.kernels or ())
    if ran and set(ran) <= library:
        detail = f"only kernels of the stock op ran: {', '.join(sorted(set(ran)))}"
        yield failure("relabelled", STAGE, detail, case.name, "FAIL" if declared else "SUSPECT")
