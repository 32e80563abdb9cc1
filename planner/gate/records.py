"""What the gate's parts say to one another: tasks, cases, findings, times, verdicts. Plain records, without torch."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar, get_args

Outcome = Literal["PASS", "FAIL", "UNKNOWN", "INFRA", "SUSPECT"]
Stage = Literal[
    "static", "build", "null", "contract", "development", "adversarial", "replay", "timing", "holdout"
]  # in the order in which they run
STAGES: tuple[Stage, ...] = get_args(Stage)

Detector = Literal[
    "uninitialised",  # output is memory nobody wrote
    "mutated-input",
    "aliases-input",
    "stale-pointer",  # same storage, new contents: the old answer came back
    "stale-content",  # one element changed that a sample would miss: the old answer came back
    "seed-known",  # right on the development cases, wrong on fresh seeds
    "phase",  # behaviour depends on how often, or in which phase, it is called
    "late-work",  # an output changed after it was returned
    "threads",  # a thread of its own works on, or the number of threads was changed
    "side-stream",
    "not-a-tensor",  # not exactly a tensor with a storage of its own
    "patched",  # a function or module is no longer the one it was
    "forged",  # a message that only the harness may send, or a wrong nonce
    "expected-leak",  # expected values in the child
    "graph-stale",  # a captured graph answers for other inputs
    "null-answer",  # an answer that needs no computing passes the checks
    "insensitive",  # another input, the same output
    "wrong",
    "mixed-batch",  # wrong only where the members of a batch differ in kind
    "shape-dependent",  # right where it was checked, wrong where it was timed
    "fallback",  # the library's kernel under another name
    "relabelled",
    "reused-output",  # one call's output is overwritten by the next
    "impossible-time",  # below what the device's peaks allow
    "clock-mismatch",  # the child's clock and the parent's disagree
    "noise",  # not above the noise of stock against stock
    "memory",
    "global-state",  # random state, torch's flags, default dtype, environment, working folder
    "contract",  # dtype, shape, strides, device, or number of outputs
    "import",
    "static",
    "crash",
    "hang",
    "memory-limit",
    "task-limit",
    "no-compiler",
    "disk-full",
    "build-error",
    "harness",
    "autograd",  # an output that requires grad or carries a grad_fn
    "slower",
]
DETECTORS: tuple[Detector, ...] = get_args(Detector)

SCHEMA = 1
Checker = Literal["qr", "relative"]
Shrink = Literal["none", "leading", "all"]
Plain = bool | int | float | str | None | tuple[bool | int | float, ...]  # what JSON holds; lists as tuples

T = TypeVar("T")


@dataclass(frozen=True)
class ArgSpec:
    """One tensor argument. `stride` in elements, None: contiguous. `dtype` as torch names it: "float32".

    `below` bounds integers that are indices: 0 <= value < below.
    """

    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...] | None = None
    below: int | None = None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class TaskCase:
    """One call of the op, without its values: those are drawn from a seed.

    `layout` gives the order of the op's positional arguments, "t" a tensor and "p" a plain value; "": all tensors, then
    all plain values. `weight` is the share of the program's time in the op that calls like this one take; the weights
    of a task sum to 1. `structure` names one of kernels/structures (`cond` as there) or of `draw`, None: normal
    numbers; what is drawn is multiplied by `scale`. `samples` are captured matrices to draw from instead, `held` those
    that only the holdout sees: "FILE#KEY" below the folder of samples.

    A dtype among the plain values is given by its name.
    """

    name: str
    weight: float
    tensors: tuple[ArgSpec, ...]
    plain: tuple[Plain, ...] = ()
    layout: str = ""
    structure: str | None = None
    cond: float = 0.0
    scale: float = 1.0
    samples: tuple[str, ...] = ()
    held: tuple[str, ...] = ()

    def args(self, tensors: Sequence[T]) -> tuple[T | Plain, ...]:
        """The positional arguments: `tensors`, one for each of `self.tensors`, with the plain values between them."""
        if not self.layout:
            return (*tensors, *self.plain)
        given: Iterator[T] = iter(tensors)
        plain = iter(self.plain)
        return tuple(next(given) if kind == "t" else next(plain) for kind in self.layout)


@dataclass(frozen=True)
class Domain:
    """What a candidate claims beyond the development cases; holdout cases are drawn from it.

    `shrink`: which sizes may be smaller than a development case's: none, the first tensor's first, or all; never
    below `least`. `strided`: inputs need not be contiguous. `structures` and `scales` (factors on a case's own) as the
    fields of TaskCase.
    """

    shrink: Shrink = "leading"
    least: int = 1
    strided: bool = True
    structures: tuple[str, ...] = ()
    scales: tuple[float, ...] = (1.0,)


@dataclass(frozen=True)
class Tolerance:
    """For the checker "relative": errors against float64 may be `factor` times the stock kernel's own, or the floor.

    All are in units of what rounding the inputs and the result makes of each number (`relative`). The floor stands in
    for a stock kernel that happens to be exact: `floor` is what a sum of some hundred numbers in another order loses,
    and a hundredth of what one pass of TF32 does; `low_floor` holds for results of 16 bits, which are added up in 32.
    The checker "qr" has limits of its own (kernels/checks.strict).
    """

    factor: float = 4.0
    floor: float = 32.0
    low_floor: float = 2.0


@dataclass(frozen=True)
class Task:
    """An op to be made faster, and what proves a candidate right. `op` is aten's name with its overload if it has one
    ("geqrf", "_softmax", "gelu", "native_layer_norm"), without the namespace.
    """

    id: str
    op: str
    device: Literal["cpu", "cuda"]
    development: tuple[TaskCase, ...]
    domain: Domain
    checker: Checker
    tolerance: Tolerance
    origin: str  # the id of a run, or "built in"
    arguments: tuple[str, ...] = ()  # their names, in a candidate's order
    step_ns: float | None = None  # what these calls take in a mean step of that run
    notes: tuple[str, ...] = ()  # what was assumed, a sentence each
    schema_number: int = SCHEMA


@dataclass(frozen=True)
class Finding:
    """What a detector found: one sentence with numbers. `case` is None where it concerns no single case."""

    detector: Detector
    outcome: Outcome
    case: str | None
    detail: str
    stage: Stage


@dataclass(frozen=True)
class Interval:
    low: float
    mid: float
    high: float


@dataclass(frozen=True)
class CaseTime:
    """Medians of one call, ns by the parent's clock. `speedup` over stock: bootstrap of the paired log ratios."""

    case: str
    stock_ns: float
    parent_ns: float | None  # None: no parent candidate was given
    candidate_ns: float
    speedup: Interval
    calls: int  # in one request
    pairs: int
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # ns of a call by leg, in order of time
    peak_bytes: int | None = None  # most memory that a candidate's call took; None: not known


@dataclass(frozen=True)
class StageCost:
    """What a stage cost, and how many of its checks it came to."""

    stage: Stage
    seconds: float
    checked: int
    of: int


@dataclass(frozen=True)
class Verdict:
    id: str
    task: str
    candidate: str  # sha256 of the file
    outcome: Outcome
    findings: tuple[Finding, ...]
    times: tuple[CaseTime, ...]
    costs: tuple[StageCost, ...]
    layer: str  # of the sandbox
    environment: Mapping[str, str] = field(default_factory=dict)
    holdout_queries: int = 0  # used so far in this lane
    tries: int = 1  # candidates judged so far in this lane, this one included
    skipped: tuple[str, ...] = ()  # "timing: 3 of 8 cases"
    speedup: Interval | None = None  # over stock: the ratio of the cases' weighted sums; None: not timed
    over_parent: Interval | None = None
    noise: float | None = None  # of stock against stock, as a fraction
    needed: float | None = None  # the speedup that the lower bound had to exceed


@dataclass(frozen=True)
class Preview:
    """A short look at a candidate: enough to drop it, never to accept it."""

    outcome: Outcome
    findings: tuple[str, ...]  # a sentence each
    over: Interval | None  # speed over the base (parent, else stock); None: not timed
    noise: float | None = None
    cases: Mapping[str, Interval] = field(default_factory=dict)  # the same by case; lanes are chosen by it
