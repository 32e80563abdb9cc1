"""How far the step time moves by itself. A noise has a name, because "within noise" means nothing without it."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 1000
SEED = 0  # the same durations give the same noise
FEWEST_GROUPS = 5


@dataclass(frozen=True)
class Noise:
    name: str  # "within-run" or "run-to-run"
    fraction: float  # of the step: a difference below it is noise


def within_run(durations_ns: Sequence[int], period: int = 1) -> Noise | None:
    """Half the 95 % bootstrap interval of the median step, over the median.

    Steps that repeat a pattern of `period` kinds are taken in groups of that many (an incomplete last group is
    left out), and the median is that of the groups' means. None for fewer than 5 groups.
    """
    groups = len(durations_ns) // period
    if groups < FEWEST_GROUPS:
        return None
    means = np.asarray(durations_ns[: groups * period], dtype=np.float64).reshape(groups, period).mean(axis=1)
    picks = np.random.default_rng(SEED).integers(0, groups, size=(RESAMPLES, groups))
    low, high = np.percentile(np.median(means[picks], axis=1), [2.5, 97.5])
    return Noise("within-run", float((high - low) / 2 / np.median(means)))


def run_to_run(runs: Sequence[Sequence[int]]) -> Noise | None:
    """Half the range of the runs' median steps, over their median. `runs` are step durations in ns; None for < 2."""
    medians = [statistics.median(run) for run in runs if run]
    if len(medians) < 2:
        return None
    return Noise("run-to-run", (max(medians) - min(medians)) / 2 / statistics.median(medians))
