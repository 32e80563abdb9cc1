"""What paired times say: intervals of speedups by bootstrap, the noise of stock against stock, and what tries cost.

A pair is one ABBA round, so that linear drift cancels within it. Its figure is the log of the two legs' ratio; the
median over pairs stands for a case, since one disturbed pair must not decide. Cases are put together as the ratio of
weighted sums: a case's weight is its share of the stock time.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from qrprof.planner.gate.records import Interval

RESAMPLES: Final = 2000
LOW, HIGH = 2.5, 97.5  # percentiles: a 95 % interval
SEED: Final = 0  # the same times give the same interval

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pairs:
    """The log ratios, base over other, of a case's ABBA rounds."""

    weight: float
    logs: tuple[float, ...]


@dataclass(frozen=True)
class Noise:
    """Of one thing against itself: `fraction` bounds the ratio's distance from 1, `sigma` is its log's deviation."""

    fraction: float
    sigma: float


def log_ratio(base_ns: Sequence[float], other_ns: Sequence[float]) -> float:
    """ln of how many times faster `other` is, over the rounds of one pair. Raises ValueError for a time not above 0."""
    if not base_ns or not other_ns or min(*base_ns, *other_ns) <= 0:
        raise ValueError(f"times must be positive: {list(base_ns)} against {list(other_ns)}")
    return math.log(math.fsum(base_ns) / len(base_ns)) - math.log(math.fsum(other_ns) / len(other_ns))


def interval(logs: Sequence[float]) -> Interval:
    """The speedup of one case. Raises ValueError where there are no pairs."""
    return together({"": Pairs(1.0, tuple(logs))})


def together(cases: Mapping[str, Pairs]) -> Interval:
    """The speedup of all cases: the ratio of their weighted sums. Raises ValueError where a case has no pairs."""
    drawn = resampled(cases)
    low, high = (float(np.exp(np.percentile(drawn, percentile))) for percentile in (LOW, HIGH))
    mid = float(np.exp(ratio_of_sums([np.array([np.median(pairs.logs)]) for pairs in cases.values()], cases)[0]))
    return Interval(min(low, mid), mid, max(high, mid))


def noise_of(cases: Mapping[str, Pairs]) -> Noise:
    """From pairs of stock against stock. A single pair of each case knows no spread: use several."""
    found = together(cases)
    return Noise(max(found.high, 1 / found.low) - 1, standard_error(cases))


def standard_error(cases: Mapping[str, Pairs]) -> float:
    """Of the log of the speedup of all cases."""
    return float(np.std(resampled(cases)))


def needed(noise: Noise, sigma: float, tries: int) -> float:
    """The speedup that a lower bound has to exceed.

    Beyond the noise by what the best of `tries` candidates of no merit would reach by luck: the largest of n normal
    numbers stays below sqrt(2 ln n) standard errors on average.
    """
    if tries < 1:
        raise ValueError(f"{tries} tries: the candidate at hand counts as one")
    return (1 + noise.fraction) * math.exp(max(noise.sigma, sigma) * math.sqrt(2 * math.log(tries)))


def resampled(cases: Mapping[str, Pairs]) -> Floats:
    """The log speedup of all cases in each of RESAMPLES draws, every case's pairs drawn among themselves."""
    if not cases or not all(pairs.logs for pairs in cases.values()):
        raise ValueError("a case without a pair of times has no speedup")
    random = np.random.default_rng(SEED)
    medians = []
    for pairs in cases.values():
        logs = np.array(pairs.logs)
        medians.append(np.median(logs[random.integers(len(logs), size=(RESAMPLES, len(logs)))], axis=1))
    return ratio_of_sums(medians, cases)


def ratio_of_sums(logs: Sequence[Floats], cases: Mapping[str, Pairs]) -> Floats:
    """log of (sum of weights) / (sum of weight / speedup): the weights are shares of the base's time."""
    weights = np.array([pairs.weight for pairs in cases.values()])
    remaining = weights @ np.exp(-np.stack(list(logs)))
    found: Floats = np.log(weights.sum()) - np.log(remaining)
    return found
