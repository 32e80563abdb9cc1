"""What a verification found. Plain records, without torch."""

from dataclasses import dataclass
from typing import Final, Literal

from qrprof.kernels.running.watched import Machine, Swaps
from qrprof.planner.gate.records import Interval

Outcome = Literal["keep", "no difference", "harmful", "cannot tell"]
Kind = Literal[
    "crashed",  # the program ends otherwise with the swaps, or does not end
    "not engaged",  # no call was served
    "wrong results",  # a call failed its check, or the kernel raised
    "no gradient",  # of a parameter that has one in the stock program
    "not finite",
    "dtype",  # of a gradient
    "gradient",  # apart from the stock run's by more than rounding explains; so are the next ones
    "update",
    "state",  # of the optimizer
    "loss",
    "update norm",
    "random numbers",  # their generators are in another state than the stock run's
    "leak",
    "slower",
    "not repeatable",  # the stock program itself does not repeat
    "not compared",  # no step or no call of a swapped op fell where it is compared
    "too few steps",
    "noise",
]
HARMFUL: Final = frozenset[Kind](
    (
        *("crashed", "wrong results", "no gradient", "not finite", "dtype", "gradient", "update", "state"),
        *("loss", "update norm", "random numbers", "leak", "slower"),
    )
)
IDLE: Final = frozenset[Kind](("not engaged",))
DRIFTED: Final = frozenset[Kind](("loss", "update norm"))  # what a larger spread may explain


@dataclass(frozen=True)
class Finding:
    kind: Kind
    text: str  # one sentence with numbers


@dataclass(frozen=True)
class Gain:
    """How many times faster a step is with the swaps. Times are ns of a mean step."""

    stock_ns: float
    swapped_ns: float
    speedup: Interval  # of 95 %
    noise: float  # between processes of one kind, as a fraction
    rounds: int
    steps: int  # of each process


@dataclass(frozen=True)
class Amplified:
    """How far stock runs drift apart whose swapped ops' inputs were moved by one rounding, as fractions."""

    runs: int
    loss: float  # largest distance in a free step
    update: float  # largest distance of an update's norm, of the median parameter
    parameters: int  # whose own update moves by more than 10 %: not compared in the free steps
    decides: bool  # False: the program amplifies rounding, only steps that begin alike are compared


@dataclass(frozen=True)
class Equivalence:
    findings: tuple[Finding, ...]
    forced: int  # steps that began from the stock run's state
    free: int  # steps after them
    parameters: int
    gradient: float  # largest distance of a gradient in a forced step, as a fraction of it
    amplified: Amplified | None  # None: there is nothing to compare
    untouched: tuple[str, ...] = ()  # names of swaps none of whose calls fell in the forced steps


@dataclass(frozen=True)
class Expected:
    """A prediction of the ledger, as a speedup of the step."""

    prediction: int  # its id
    base_ns: float  # the step that it began with
    speedup: Interval


@dataclass(frozen=True)
class Memory:
    """Bytes: the largest peak of the processes, and how much more they hold at the end of a step than one before."""

    stock_peak: int
    swapped_peak: int
    stock_growth: float
    swapped_growth: float


@dataclass(frozen=True)
class Slower:
    """Work that no swap touches and that takes longer with the swaps than without, ns of a mean step."""

    key: str
    shapes: str
    ns: float


@dataclass(frozen=True)
class Compared:
    """Short traces of both programs, taken after the timed steps."""

    slower: tuple[Slower, ...]
    kernels: tuple[str, ...]  # that only the swapped program launches on a GPU
    withheld: str | None  # why the traces say nothing of other work


@dataclass(frozen=True)
class Verification:
    outcome: Outcome
    findings: tuple[Finding, ...]
    swaps: Swaps
    equivalence: Equivalence | None  # None: the program does not run with the swaps
    gain: Gain | None  # None: not timed
    memory: Memory | None
    compared: Compared | None
    expected: Expected | None  # None: nothing was promised
    held: bool | None
    machine: Machine
    notes: tuple[str, ...]
    seconds: float
