"""Hard limits: how they are written, and the meter that everything asks before it spends.

What is reserved counts as spent until it is settled, and is kept at once: a process that is killed in the middle of a
request, or of an evaluation, has used it all the same.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from qrprof.planner.optimize.prices import Price
from qrprof.planner.optimize.records import Budget, BudgetSpent, Role, Usage
from qrprof.profiler import units
from qrprof.profiler.errors import Exit, QrprofError

Spender = Literal["evaluator", "proposer", "adviser"]
Spent = Mapping[Spender, Usage]

NUMBER: Final = r"([0-9]+(?:\.[0-9]+)?)"
LIMITS: Final = (  # a pattern, the field of Budget, and what one of its unit is there
    (rf"\${NUMBER}", "dollars", 1.0),
    (rf"{NUMBER}s", "seconds", 1.0),
    (rf"{NUMBER}min", "seconds", 60.0),
    (rf"{NUMBER}h", "seconds", 3600.0),
    (rf"{NUMBER}gpu-s", "gpu_seconds", 1.0),
    (rf"{NUMBER}gpu-min", "gpu_seconds", 60.0),
    (rf"{NUMBER}gpu-h", "gpu_seconds", 3600.0),
    (rf"{NUMBER}evals?", "evaluations", 1.0),
    (rf"{NUMBER}tokens?", "tokens", 1.0),
    (rf"{NUMBER}ktokens?", "tokens", 1e3),
    (rf"{NUMBER}Mtokens?", "tokens", 1e6),
)
WHOLE: Final = frozenset({"evaluations", "tokens"})
LIKE: Final = "give limits as 2h,$5,200evals,30gpu-min,100ktokens"


def parse(text: str) -> Budget:
    """`2h,$5,200evals,30gpu-min,100ktokens` as limits; what is not named keeps its default.

    Raises QrprofError (exit code 2) for a part that is no limit, for one that is not above 0, and for two of a kind.
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        name, value = limit("".join(part.split()))
        if name in found:
            raise QrprofError(f"--budget {text} limits {name.replace('_', ' ')} twice; {LIKE}", Exit.USAGE)
        found[name] = value
    return replace(Budget(), **found)  # type: ignore[arg-type]


def limit(part: str) -> tuple[str, float]:
    for pattern, name, scale in LIMITS:
        if match := re.fullmatch(pattern, part, re.ASCII):
            value = float(match[1]) * scale
            if name in WHOLE and value.is_integer():
                value = int(value)
            if value > 0 and (name not in WHOLE or isinstance(value, int)):
                return name, value
    raise QrprofError(f"--budget cannot be read at {part!r}; {LIKE}", Exit.USAGE)


@dataclass(frozen=True)
class Held:
    """What is left alone by what is asked now, for what comes last."""

    evaluations: int = 0
    seconds: float = 0.0
    gpu_seconds: float = 0.0


NOTHING: Final = Held()
LAST: Final = 2  # evaluations, for the gate and for its holdout
FOR_THE_END: Final = 0.2  # of the seconds
LONGEST_END: Final = 600.0  # s


def for_the_end(budget: Budget) -> Held:
    """What exploring leaves for the gate of what it found: two evaluations, a fifth of the time."""
    seconds, gpu_seconds = (
        min(FOR_THE_END * (limit or 0.0), LONGEST_END) for limit in (budget.seconds, budget.gpu_seconds)
    )
    evaluations = LAST if budget.evaluations is None else min(LAST, budget.evaluations // 2)
    return Held(evaluations, seconds, gpu_seconds)


@dataclass(frozen=True, eq=False)  # two of the same size are two
class Reservation:
    """What a request may cost at most."""

    role: Role
    tokens_in: int
    tokens_out: int
    price: Price | None

    @property
    def usage(self) -> Usage:
        return used(self.tokens_in, self.tokens_out, self.price)


class Meter:
    """What is spent of a budget, and by whom. `clock` gives seconds that never run back.

    `before` is what earlier processes of the same optimization spent. `keep` is told of all that is spent, what is
    reserved included, whenever it changes.
    """

    def __init__(
        self,
        budget: Budget,
        clock: Callable[[], float],
        before: Spent | None = None,
        keep: Callable[[Spent], None] = lambda spent: None,
    ) -> None:
        self.budget = budget
        self.clock = clock
        self.keep = keep
        self.settled: dict[Spender, Usage] = {"evaluator": Usage(), "proposer": Usage(), "adviser": Usage()}
        self.settled |= before or {}
        self.open: list[Reservation] = []
        self.zero = clock() - self.settled["evaluator"].seconds

    # --- what was spent, and what is left

    def spent(self) -> Spent:
        """By role; the seconds are the evaluator's."""
        found = dict(self.settled)
        for asked in self.open:
            found[asked.role] = added(found[asked.role], asked.usage)
        return found | {"evaluator": replace(found["evaluator"], seconds=self.clock() - self.zero)}

    def total(self) -> Usage:
        return together(list(self.spent().values()))

    def seconds_left(self) -> float:
        return left_of(self.budget.seconds, self.clock() - self.zero)

    def gpu_seconds_left(self) -> float:
        return left_of(self.budget.gpu_seconds, self.settled["evaluator"].gpu_seconds)

    def evaluations_left(self) -> float:
        return left_of(self.budget.evaluations, self.settled["evaluator"].evaluations)

    def left(self) -> str:
        """What is left of each limit, one line: `1,260 s, 12 evaluations, $1.20`."""
        return ", ".join(texts(self.budget, self.total())) or "no limits"

    def remaining(self) -> Budget:
        """What is left, as limits for what comes next: another target, say. Nothing is below 0."""
        total, budget = self.total(), self.budget
        tokens = total.tokens_in + total.tokens_out
        return Budget(
            None if budget.seconds is None else max(0.0, budget.seconds - total.seconds),
            None if budget.evaluations is None else max(0, budget.evaluations - total.evaluations),
            None if budget.dollars is None else max(0.0, budget.dollars - known_dollars(self.spent())),
            None if budget.tokens is None else max(0, budget.tokens - tokens),
            None if budget.gpu_seconds is None else max(0.0, budget.gpu_seconds - total.gpu_seconds),
        )

    # --- requests of a model

    def reserve(self, role: Role, tokens_in: int, tokens_out: int, price: Price | None) -> Reservation:
        """Ask before each request, retries too: of `tokens_in` tokens, and for `tokens_out` at most.

        `price` None: unknown, which only a limit in tokens allows where there is one in dollars. Raises BudgetSpent
        where a limit might be exceeded.
        """
        asked = Reservation(role, tokens_in, tokens_out, price)
        spent, budget = self.spent(), self.budget
        total, dollars = together(list(spent.values())), asked.usage.dollars
        if self.seconds_left() <= 0:
            raise BudgetSpent(f"the {budget.seconds:g} s of the budget are used up")
        if budget.tokens is not None and total.tokens_in + total.tokens_out + tokens_in + tokens_out > budget.tokens:
            raise BudgetSpent(f"a request of up to {tokens_in + tokens_out:,} tokens may exceed the {budget.tokens:,}")
        if dollars is None and budget.dollars is not None and budget.tokens is None:
            raise BudgetSpent(f"no price is known by which to hold the {budget.dollars:g} dollars")
        if dollars is not None and budget.dollars is not None and known_dollars(spent) + dollars > budget.dollars:
            raise BudgetSpent(f"a request of up to ${dollars:.4f} may exceed the ${budget.dollars:g}")
        self.open.append(asked)
        self.keep(self.spent())
        return asked

    def settle(self, asked: Reservation, tokens_in: int, tokens_out: int) -> None:
        """What a reserved request took in the end: 0 and 0 where it never reached its host."""
        self.open.remove(asked)
        self.settled[asked.role] = added(self.settled[asked.role], used(tokens_in, tokens_out, asked.price))
        self.keep(self.spent())

    # --- evaluations

    def room(self, most: int, held: Held = NOTHING) -> int:
        """How many evaluations can begin now, up to `most`. Raises BudgetSpent where it is none."""
        budget = self.budget
        if self.seconds_left() <= held.seconds:
            raise BudgetSpent(f"the {budget.seconds:g} s of the budget are used up{kept_back(held.seconds, 's')}")
        if self.gpu_seconds_left() <= held.gpu_seconds:
            back = kept_back(held.gpu_seconds, "s")
            raise BudgetSpent(f"the {budget.gpu_seconds:g} GPU seconds of the budget are used up{back}")
        count = min(most, self.evaluations_left() - held.evaluations)
        if count < 1:
            back = kept_back(held.evaluations, "of them")
            raise BudgetSpent(f"the {budget.evaluations} evaluations of the budget are used up{back}")
        return int(count)

    def submit(self, most: int, held: Held = NOTHING) -> int:
        """As `room`, and count them: before they begin."""
        count = self.room(most, held)
        self.count(Usage(evaluations=count))
        return count

    def count(self, usage: Usage) -> None:
        """Add what evaluations took."""
        self.settled["evaluator"] = added(self.settled["evaluator"], usage)
        self.keep(self.spent())

    def skip(self, seconds: float) -> None:
        """Seconds that do not count, as those of a pause."""
        self.zero += seconds


def kept_back(held: float, unit: str) -> str:
    return f", but for {held:g} {unit} that the last look at the best takes" if held else ""


def used(tokens_in: int, tokens_out: int, price: Price | None) -> Usage:
    dollars = price.dollars(tokens_in, tokens_out) if price else None
    return Usage(dollars=dollars, tokens_in=tokens_in, tokens_out=tokens_out, requests=1)


def added(one: Usage, other: Usage) -> Usage:
    """The sum; its dollars are unknown where those of one are."""
    return Usage(
        seconds=one.seconds + other.seconds,
        evaluations=one.evaluations + other.evaluations,
        dollars=None if one.dollars is None or other.dollars is None else one.dollars + other.dollars,
        tokens_in=one.tokens_in + other.tokens_in,
        tokens_out=one.tokens_out + other.tokens_out,
        requests=one.requests + other.requests,
        gpu_seconds=one.gpu_seconds + other.gpu_seconds,
    )


def together(usages: Sequence[Usage]) -> Usage:
    total = Usage()
    for usage in usages:
        total = added(total, usage)
    return total


def known_dollars(spent: Spent) -> float:
    return sum(usage.dollars or 0.0 for usage in spent.values())


def left_of(most: float | None, used_up: float) -> float:
    return math.inf if most is None else most - used_up


def texts(budget: Budget, total: Usage) -> list[str]:
    """What is left of each limit that there is."""
    found = []
    if budget.seconds is not None:
        found.append(units.time(max(0.0, budget.seconds - total.seconds) * 1e9))
    if budget.evaluations is not None:
        found.append(units.counted(max(0, budget.evaluations - total.evaluations), "evaluation"))
    if budget.dollars is not None and total.requests:
        found.append("dollars unknown" if total.dollars is None else f"${max(0.0, budget.dollars - total.dollars):.2f}")
    if budget.tokens is not None:
        found.append(f"{max(0, budget.tokens - total.tokens_in - total.tokens_out):,} tokens")
    if budget.gpu_seconds is not None:
        found.append(f"{units.time(max(0.0, budget.gpu_seconds - total.gpu_seconds) * 1e9)} of GPU")
    return found
