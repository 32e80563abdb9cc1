"""What the stages share: the task, the candidate's worker, and a worker of the stock op that is given the same inputs.

Expected values exist in this process and the stock op's alone.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from qrprof.planner.gate.draw import draw
from qrprof.planner.gate.records import Detector, Finding, Outcome, Stage, Task, TaskCase
from qrprof.planner.gate.replies import Arguments, Built, Call, Reply, Worker, Workers

Seeds = Callable[[], int]  # private ones, another each time


@dataclass(frozen=True, eq=False)  # tensors have no one truth
class Input:
    case: TaskCase
    args: Arguments


@dataclass(frozen=True, eq=False)
class Asked:
    """One call, answered by the candidate and by the stock op."""

    input: Input
    call: Call
    stock: Call

    @property
    def case(self) -> TaskCase:
        return self.input.case

    @property
    def counts(self) -> bool:
        """Whether the stock op took these inputs: where it raises, a candidate may do as it likes."""
        return self.stock.error is None


@dataclass(frozen=True, eq=False)
class Round:
    """One request and both replies."""

    asked: tuple[Asked, ...]
    reply: Reply
    stock: Reply


@dataclass(frozen=True)
class Trial:
    task: Task
    source: Path
    workers: Workers
    stock: Worker
    candidate: Worker
    built: Built
    seeds: Seeds
    rng: random.Random  # seeded privately: orders, numbers of calls, places

    def draw(self, case: TaskCase) -> Input:
        return Input(case, draw(case, self.seeds(), self.task.device))

    def ask(
        self, inputs: Sequence[Input], *, worker: Worker | None = None, watch: bool = False, again: bool = False
    ) -> Round:
        """Ask the candidate, in the main worker if none is given, and the stock op. Raises Ended."""
        given = [one.args for one in inputs]
        reply = (worker or self.candidate).call(given, watch=watch, again=again)
        stock = self.stock.call(given, watch=watch)
        answers = zip(inputs, reply.calls, stock.calls, strict=True)
        return Round(tuple(Asked(one, call, expected) for one, call, expected in answers), reply, stock)

    @contextmanager
    def fresh(self) -> Iterator[Worker]:
        """The candidate in a new process, built. Raises Ended."""
        with self.workers(self.source) as worker:
            worker.build()
            yield worker


@dataclass(frozen=True)
class Checked:
    """What came of a stage, or of a part of it."""

    findings: tuple[Finding, ...] = ()
    checked: int = 0
    of: int = 0
    same_bits: bool = True  # as the stock op, on every call
    peak_bytes: Mapping[str, int] = field(default_factory=dict)  # of a call by case, where it was looked at

    def __add__(self, other: "Checked") -> "Checked":
        return Checked(
            self.findings + other.findings,
            self.checked + other.checked,
            self.of + other.of,
            self.same_bits and other.same_bits,
            {**self.peak_bytes, **other.peak_bytes},
        )

    @property
    def failed(self) -> bool:
        return any(finding.outcome == "FAIL" for finding in self.findings)


def total(parts: Iterable[Checked]) -> Checked:
    return sum(parts, Checked())


def failure(
    detector: Detector, stage: Stage, detail: str, case: str | None = None, outcome: Outcome = "FAIL"
) -> Finding:
    return Finding(detector, outcome, case, detail, stage)


def same_bits(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
    """Whether outputs agree in number, shape, dtype and every bit: a NaN is equal to itself."""
    return len(ours) == len(theirs) and all(
        a.dtype == b.dtype and a.shape == b.shape and torch.equal(raw(a), raw(b))
        for a, b in zip(ours, theirs, strict=True)
    )


def raw(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def tensors(args: Arguments) -> list[Tensor]:
    return [value for value in args if isinstance(value, Tensor)]
