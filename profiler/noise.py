"""How far the step time moves by itself. A noise has a name, because "within noise" means nothing without it."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qrprof.profiler.nesting import Floats
from qrprof.profiler.runinfo import Block, RunInfo

RESAMPLES = 1000
SEED = 0  # the same durations give the same noise
FEWEST_STEPS = 5
FEWEST_STRETCHES = 8  # that the longest ones leave

ByKind = Mapping[str, Floats]
Frequency = Mapping[str, float]  # of each kind of steps; without any, kinds count as often as they are there


@dataclass(frozen=True)
class Noise:
    name: str  # "within-run" or "run-to-run"
    fraction: float  # of the step: a difference below it is noise


def of_run(run: RunInfo) -> Noise | None:
    """The noise that is known best: from run to run where there were several, else within the run."""
    return run_to_run([run.unprofiled_ns(), *run.repeats]) or within_run(run.unprofiled, frequency(run))


def within_run(blocks: Sequence[Block], often: Frequency) -> Noise | None:
    """Half the 95 % bootstrap interval of the mean step over it, or half the blocks' drift if that is more.

    The mean is that of `RunInfo.step_ns`, over kinds of steps: a pattern is not noise. A single long step moves it, so
    it is noise. None for fewer than 5 steps.
    """
    kinds = by_kind(blocks)
    if sum(map(len, kinds.values())) < FEWEST_STEPS:
        return None
    moved = drift(blocks, often)
    half = abs(moved) / (2 + moved)  # of the mean of the two
    return Noise("within-run", max(spread(blocks, often) / mean_step(kinds, often), half))


def frequency(run: RunInfo) -> Frequency:
    return {kind.name: kind.frequency for kind in run.kinds}


def by_kind(blocks: Sequence[Block]) -> ByKind:
    names, durations = in_order(blocks)
    return {str(name): durations[names == name] for name in np.unique(names)}


def in_order(blocks: Sequence[Block]) -> tuple[npt.NDArray[np.str_], Floats]:
    """The kind and the duration of each step, ns."""
    names = [kind for block in blocks for kind in block.kinds]
    durations = [ns for block in blocks for ns in block.durations_ns]
    return np.array(names, dtype=np.str_), np.array(durations, dtype=np.float64)


def mean_step(kinds: ByKind, often: Frequency) -> float:
    return sum(share * float(kinds[kind].mean()) for kind, share in shares(kinds, often).items())


def shares(kinds: ByKind, often: Frequency) -> dict[str, float]:
    """Of the kinds in the mean step, as `RunInfo.step_ns` weighs them."""
    weights = {kind: often.get(kind, 0.0) for kind in kinds}
    if not any(weights.values()):
        weights = {kind: float(len(durations)) for kind, durations in kinds.items()}
    total = sum(weights.values())
    return {kind: weight / total for kind, weight in weights.items()}


# --- chance


def spread(blocks: Sequence[Block], often: Frequency) -> float:
    """Half the 95 % interval of the mean step of `blocks`, ns.

    Steps next to each other are alike, or a long one follows a short one, so what is resampled are stretches of 2, 4,
    8, ... steps. The length that says most stands.
    """
    moves = deviations(blocks, often)
    powers = range(1, max(2, (len(moves) // FEWEST_STRETCHES).bit_length()))
    return max(half_interval(moves, 2**power) for power in powers)


def deviations(blocks: Sequence[Block], often: Frequency) -> Floats:
    """What each step adds to the mean step beyond its kind's mean, times the number of steps; scaled up for few."""
    names, durations = in_order(blocks)
    found = np.zeros(len(durations))
    for kind, share in shares(by_kind(blocks), often).items():
        mine = durations[names == kind]
        count = len(mine)
        found[names == kind] = share * len(found) * (mine - mine.mean()) / math.sqrt(max(1, count * (count - 1)))
    return found


def half_interval(moves: Floats, length: int) -> float:
    """Half the 95 % interval of the mean of `moves`, by stretches of `length` of them; the first follows the last."""
    count, number = len(moves), len(moves) // length
    stretches = np.lib.stride_tricks.sliding_window_view(np.append(moves, moves[: length - 1]), length).mean(axis=1)
    means = np.random.default_rng(SEED).choice(stretches, (RESAMPLES, number)).mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    scale = (count - 1) / (count - length) * number * length / count  # few stretches vary less, fewer steps more
    return float(high - low) / 2 * math.sqrt(scale)


# --- drift


def drift(blocks: Sequence[Block], often: Frequency) -> float:
    """How much longer the mean step of the last block is than that of the first, as a fraction of the first.

    Kinds of steps that only one of the two holds are left out, and the others weigh the same in both. 0 where there are
    no two blocks to compare.
    """
    weights = shares(by_kind(blocks), often)
    means = [mean_step(by_kind([block]), weights) for block in ends(blocks)]
    return means[1] / means[0] - 1 if means else 0.0


def lasting_drift(blocks: Sequence[Block], often: Frequency) -> float:
    """The drift where it is more than the steps of the two blocks make likely by chance (95 %), else 0.

    0 where one of the blocks has fewer than 5 steps.
    """
    compared, moved = ends(blocks), drift(blocks, often)
    if not compared or min(len(block.kinds) for block in compared) < FEWEST_STEPS:
        return 0.0
    weights = shares(by_kind(blocks), often)
    chance = math.hypot(*(spread([block], weights) for block in compared))
    return moved if abs(moved) * mean_step(by_kind(compared[:1]), weights) > chance else 0.0


def ends(blocks: Sequence[Block]) -> list[Block]:
    """The first and the last block that hold steps, with the kinds that both hold; none where there are no two."""
    held = [block for block in blocks if block.durations_ns]
    shared = set(held[0].kinds) & set(held[-1].kinds) if len(held) > 1 else set()
    return [only(held[0], shared), only(held[-1], shared)] if shared else []


def only(block: Block, kinds: set[str]) -> Block:
    kept = [pair for pair in zip(block.kinds, block.durations_ns, strict=True) if pair[0] in kinds]
    return block.model_copy(update={"kinds": [kind for kind, _ in kept], "durations_ns": [ns for _, ns in kept]})


def run_to_run(runs: Sequence[Sequence[int]]) -> Noise | None:
    """Half the range of the runs' mean steps, over their median. `runs` are step durations in ns; None for < 2."""
    means = [statistics.fmean(run) for run in runs if run]
    if len(means) < 2:
        return None
    return Noise("run-to-run", (max(means) - min(means)) / 2 / statistics.median(means))
