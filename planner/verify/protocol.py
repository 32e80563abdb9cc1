"""What interleaved processes say of a step: how much faster it is with the swaps, how sure that is, and what is held.

A round is stock, swapped, swapped, stock, so that linear drift cancels. All processes time the same steps of the
program, so that each step stands beside itself: for a step, the median over the processes stands, since one disturbed
one must not decide; the gain is a ratio of sums over the steps, since slow steps count for more. The interval is a
bootstrap over rounds and steps, these by kind: where each tenth step refreshes a preconditioner, no draw is without
such steps. Steps are of one kind in which the swaps serve as many calls. Noise is what processes of one kind differ by
from one another, the first of the rounds from the last: the more of stock's and of the swapped program's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from qrprof.kernels.running.watched import Timed
from qrprof.planner.gate.records import Interval
from qrprof.planner.verify.records import Finding, Gain, Memory
from qrprof.profiler import units

RESAMPLES: Final = 2000
LOW, HIGH = 2.5, 97.5  # percentiles: a 95 % interval
SEED: Final = 0  # the same times give the same interval
FEWEST: Final = 3  # steps of a process
RESOLUTION: Final = 0.05  # a difference that could be larger is not called none
LEAK_SHARE: Final = 0.01  # of the stock peak, that may be held more after the timed steps
LEAK_BYTES: Final = 1 << 20

Word = Literal["faster", "slower", "no difference", "cannot tell"]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Round:
    """Four processes in the order in which they ran."""

    first: Timed
    swapped: tuple[Timed, Timed]
    last: Timed

    @property
    def stock(self) -> tuple[Timed, Timed]:
        return self.first, self.last

    @property
    def legs(self) -> tuple[Timed, ...]:
        return (*self.stock, *self.swapped)


def gain_of(rounds: Sequence[Round]) -> Gain | None:
    """None for fewer than FEWEST steps that all processes timed."""
    steps = min((len(leg.steps_ns) for one in rounds for leg in one.legs), default=0)
    if steps < FEWEST:
        return None
    stock, swapped = (times([getattr(one, side) for one in rounds], steps) for side in ("stock", "swapped"))
    kinds = kinds_of(np.median([leg.served[:steps] for one in rounds for leg in one.swapped], axis=0).tolist())
    return Gain(
        stock_ns=float(np.median(stock.reshape(-1, steps), axis=0).mean()),
        swapped_ns=float(np.median(swapped.reshape(-1, steps), axis=0).mean()),
        speedup=interval(stock, swapped, kinds),
        noise=max(between(stock, kinds), between(swapped, kinds)),
        rounds=len(rounds),
        steps=steps,
    )


def kinds_of(served: Sequence[float]) -> list[Ints]:
    """The places of the steps of each kind; those that are the only one of theirs are together.

    A single one of that sort goes with the most frequent kind: drawn each time, it would be as sure as nothing is.
    """
    places: dict[float, list[int]] = {}
    for place, calls in enumerate(served):
        places.setdefault(calls, []).append(place)
    several = sorted((found for found in places.values() if len(found) > 1), key=len)
    alone = [found[0] for found in places.values() if len(found) == 1]
    if several and len(alone) == 1:
        several[-1].append(alone.pop())
    return [np.array(found) for found in (*several, alone) if found]


def between(legs: Floats, kinds: Sequence[Ints]) -> float:
    """What the first processes of the rounds differ by from the last ones, as a fraction, at most."""
    found = interval(legs[:, :1], legs[:, 1:], kinds)
    return max(found.high, 1 / found.low) - 1


def times(legs: Sequence[Sequence[Timed]], steps: int) -> Floats:
    """(rounds, processes, steps), ns."""
    return np.array([[leg.steps_ns[:steps] for leg in one] for one in legs], dtype=np.float64)


def interval(base: Floats, other: Floats, kinds: Sequence[Ints]) -> Interval:
    """How many times faster `other` is. Both are as `times` gives them, of the same rounds and steps."""
    rounds, _, steps = base.shape
    random = np.random.default_rng(SEED)
    of_rounds = random.integers(rounds, size=(RESAMPLES, rounds))
    drawn_of = [places[random.integers(len(places), size=(RESAMPLES, len(places)))] for places in kinds]
    of_steps = np.concatenate(drawn_of, axis=1)

    def drawn(legs: Floats) -> Floats:
        middle = np.median(legs[of_rounds].reshape(RESAMPLES, -1, steps), axis=1)
        found: Floats = np.take_along_axis(middle, of_steps, axis=1).sum(axis=1)
        return found

    def whole(legs: Floats) -> float:
        return float(np.median(legs.reshape(-1, steps), axis=0).sum())

    logs = np.log(drawn(base)) - np.log(drawn(other))
    low, high = (float(np.exp(value)) for value in np.percentile(logs, (LOW, HIGH)))
    mid = whole(base) / whole(other)
    return Interval(min(low, mid), mid, max(high, mid))


def word(gain: Gain) -> Word:
    """What the times say: a gain or a loss has to lie outside the noise with all of its interval."""
    margin = 1 + gain.noise
    if gain.speedup.low > margin:
        return "faster"
    if gain.speedup.high < 1 / margin:
        return "slower"
    unsure = max(margin, gain.speedup.high, 1 / gain.speedup.low) - 1
    return "no difference" if unsure <= RESOLUTION else "cannot tell"


def memory_of(rounds: Sequence[Round]) -> Memory:
    """Growth is the least of the swapped processes', and the most of the stock ones': a leak shows in all of them."""
    stock = [leg for one in rounds for leg in one.stock]
    swapped = [leg for one in rounds for leg in one.swapped]
    return Memory(
        stock_peak=max(leg.peak for leg in stock),
        swapped_peak=max(leg.peak for leg in swapped),
        stock_growth=max(growth(leg.memory) for leg in stock),
        swapped_growth=min(growth(leg.memory) for leg in swapped),
    )


def growth(held: Sequence[int]) -> float:
    """Bytes by which what is held grows from a step to the next: the slope of the median of all pairs of steps."""
    slopes = [(held[j] - held[i]) / (j - i) for i in range(len(held)) for j in range(i + 1, len(held))]
    return float(np.median(slopes)) if slopes else 0.0


def leak(memory: Memory, steps: int) -> Finding | None:
    """Over `steps` steps the swapped program came to hold more, and the stock one did not."""
    more = memory.swapped_growth - max(memory.stock_growth, 0.0)
    if more * steps <= max(LEAK_SHARE * memory.stock_peak, LEAK_BYTES):
        return None
    return Finding(
        "leak",
        f"memory grows by {units.size(memory.swapped_growth)} a step with the swaps, stock by"
        f" {units.size(max(memory.stock_growth, 0.0))}",
    )
