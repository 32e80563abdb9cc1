"""How far the step time moves by itself. A noise has a name, because "within noise" means nothing without it."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qrprof.profiler.runinfo import Block, RunInfo

RESAMPLES = 1000
SEED = 0  # the same durations give the same noise
FEWEST_STEPS = 5

ByKind = Mapping[str, npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Noise:
    name: str  # "within-run" or "run-to-run"
    fraction: float  # of the step: a difference below it is noise


def of_run(run: RunInfo) -> Noise | None:
    """The noise that is known best: from run to run where there were several, else within the run."""
    return run_to_run([run.unprofiled_ns(), *run.repeats]) or within_run(run.unprofiled)


def within_run(blocks: Sequence[Block]) -> Noise | None:
    """Half the 95 % bootstrap interval of the median step over it, or half the blocks' drift if that is more.

    Steps of different kinds are resampled apart, and the median step is the mean of the kinds' medians, each weighted
    by how often the kind occurs: a pattern is not noise. None for fewer than 5 steps.
    """
    kinds = by_kind(blocks)
    if sum(len(durations) for durations in kinds.values()) < FEWEST_STEPS:
        return None
    drawn = np.random.default_rng(SEED)
    middle = median_step(kinds)
    resampled = [
        median_step({kind: drawn.choice(durations, len(durations)) for kind, durations in kinds.items()})
        for _ in range(RESAMPLES)
    ]
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Noise("within-run", max(float(high - low) / 2 / middle, abs(drift(blocks)) / 2))


def by_kind(blocks: Sequence[Block]) -> ByKind:
    pairs = [pair for block in blocks for pair in zip(block.kinds, block.durations_ns, strict=True)]
    names = sorted({kind for kind, _ in pairs})
    return {name: np.array([ns for kind, ns in pairs if kind == name], dtype=np.float64) for name in names}


def median_step(kinds: ByKind) -> float:
    return weighted_medians(kinds, {kind: len(durations) for kind, durations in kinds.items()})


def weighted_medians(kinds: ByKind, weights: Mapping[str, int]) -> float:
    total = sum(weights[kind] for kind in kinds)
    return sum(float(np.median(durations)) * weights[kind] for kind, durations in kinds.items()) / total


def drift(blocks: Sequence[Block]) -> float:
    """How much longer the median step of the last block is than that of the first, as a fraction of the first.

    Kinds of steps that only one of the two holds are left out, and the others weigh the same in both. 0 where there are
    no two blocks to compare.
    """
    held = [by_kind([block]) for block in blocks if block.durations_ns]
    shared = held[0].keys() & held[-1].keys() if len(held) > 1 else set()
    if not shared:
        return 0.0
    weights = {kind: len(durations) for kind, durations in by_kind(blocks).items()}
    first, last = (weighted_medians({kind: block[kind] for kind in shared}, weights) for block in (held[0], held[-1]))
    return last / first - 1


def run_to_run(runs: Sequence[Sequence[int]]) -> Noise | None:
    """Half the range of the runs' mean steps, over their median. `runs` are step durations in ns; None for < 2."""
    means = [statistics.fmean(run) for run in runs if run]
    if len(means) < 2:
        return None
    return Noise("run-to-run", (max(means) - min(means)) / 2 / statistics.median(means))
