"""Which steps to time, which to record: decided from what the steps so far looked like. Pure.

Warm-up; a block of unprofiled steps; the recording: one lead-in step under the profiler (its
first-use costs, and the device work still queued, fall there), the window, one step to settle; a
second unprofiled block; and if needed a stretch in which matrices are sampled.

Steps need not be alike (an optimizer may refresh its preconditioner each 10th step). A step's *kind*
is what linalg calls it made, and whether it is one of a regular series of slow steps. The pattern of
kinds has a period, up to MAX_PERIOD steps; unprofiled blocks and the window are whole multiples of it.
A window that would be too long shrinks to the shortest stretch that holds one step of each kind, and
each recorded step is then weighted by how often its kind occurs.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

MAX_PERIOD = 64
WATCH_SECONDS = 10.0  # how long to look for a rare kind of step once a window is recorded
SEARCH_SECONDS = 120.0  # how long to look for the period of a pattern that is seen to vary
FIRST_LOOK = 2  # blocks to look through for a period before recording without one
SLOW = 1.5  # a step this many times the median may belong to a series of slow ones
SERIES = 4  # steps at least: three may lie evenly by chance
FAR = 5.0  # times the median: steps worth waiting for more of, where they also hold
MUCH = 0.05  # of the time


class Phase(StrEnum):
    WARMUP = "warming up"
    UNPROFILED = "timing unprofiled steps"
    RECORD = "recording"  # with a lead-in step before and a settling step after
    SAMPLE = "sampling matrices"
    STOP = "stopping"
    DONE = "done"


@dataclass(frozen=True)
class Step:
    """One step of the program. `ns` is None where it was not timed (profiled, settling)."""

    index: int
    calls: tuple[tuple[str, int], ...]  # linalg op and shape -> count, sorted
    ns: int | None
    block: int  # 0 before the recording, 1 after it


@dataclass(frozen=True)
class Settings:
    steps: int = 5
    warmup: int = 3
    stop: bool = False
    record: bool = True  # False: only time steps (a repeat)

    @property
    def unprofiled(self) -> int:
        """Steps of an unprofiled block, before rounding to whole periods."""
        return 4 * self.steps


@dataclass(frozen=True)
class Progress:
    """All the planner looks at."""

    steps: tuple[Step, ...]  # every step since the warm-up
    last: Phase  # the phase that has just ended
    windows: int  # recordings made so far
    recorded: tuple[int, ...]  # step indices of the latest recording
    seconds: float  # since the first step
    unsampled: bool  # some kind of linalg call has no sample yet


@dataclass(frozen=True)
class Decision:
    phase: Phase
    steps: int  # length of the phase


def kinds_of(steps: Sequence[Step]) -> list[str]:
    """The kind of each step: "A" for the commonest pattern of calls, "B", ...; a `+` marks a slow series.

    Among the steps of a slow series there may be a slower one (a log each 10th step, an evaluation each 50th): `++`.
    """
    slowness: Counter[int] = Counter()
    within = steps
    while (series := slow_series(within)) is not None:
        within = [step for step in within if step.index % series[0] == series[1]]
        slowness.update(step.index for step in within)
    keys = [(step.calls, slowness[step.index]) for step in steps]
    order = [key for key, _ in Counter(keys).most_common()]
    letters: dict[tuple[tuple[str, int], ...], str] = {}
    for calls in dict.fromkeys(calls for calls, _ in order):
        letters[calls] = letter(len(letters))
    return [letters[calls] + "+" * slow for calls, slow in keys]


def letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else f"K{number}"


def slow_series(steps: Sequence[Step]) -> tuple[int, int] | None:
    """(g, r) when the steps whose index is r modulo g, and no others, are slow though they call the same.

    Slow is more than SLOW times the median, or than any step above that: a stray one hides no series of longer ones.
    """
    times = comparable(steps)
    if len(times) < 6:
        return None
    limit = SLOW * statistics.median(times.values())
    ranked = sorted(times, key=times.__getitem__)
    first = sum(ns <= limit for ns in times.values())
    for place in range(first, len(ranked) - SERIES + 1):
        stands_apart = place == first or times[ranked[place]] > SLOW * times[ranked[place - 1]]
        found = series_of(set(ranked[place:]), times.keys()) if stands_apart else None
        if found is not None:
            return found
    return None


def comparable(steps: Sequence[Step]) -> dict[int, int]:
    """Index -> ns of the timed steps that make the commonest calls."""
    common = Counter(step.calls for step in steps).most_common(1)
    return {step.index: step.ns for step in steps if step.ns is not None and step.calls == common[0][0]}


def series_of(slow: set[int], timed: Iterable[int]) -> tuple[int, int] | None:
    """(g, r), of the longest g up to MAX_PERIOD, when those `slow` are all timed steps that are r modulo g."""
    first = min(slow)
    apart = math.gcd(*(index - first for index in slow))
    for g in range(MAX_PERIOD, 1, -1):
        if apart % g == 0 and slow == {index for index in timed if index % g == first % g}:
            return g, first % g
    return None


def may_begin_series(steps: Sequence[Step]) -> bool:
    """Whether too few rare steps for a series hold much of the time, and none that was due has failed to come.

    So it is not for long: within MAX_PERIOD steps the next one comes, or is overdue.
    """
    times = comparable(steps)
    ranked = sorted(times, key=times.__getitem__, reverse=True)
    if len(ranked) < 2 * SERIES:
        return False
    far, total = FAR * statistics.median(times.values()), sum(times.values())
    for count in range(1, SERIES):
        rare, longest, other = ranked[:count], times[ranked[count - 1]], times[ranked[count]]
        much = sum(times[index] for index in rare) >= MUCH * total
        if much and longest > max(far, SLOW * other) and series_of(set(rare), times.keys()) is not None:
            return True
    return False


def find_period(kinds: Sequence[str]) -> int | None:
    """The shortest period, at most MAX_PERIOD, that two whole cycles of the sequence confirm."""
    if len(set(kinds)) <= 1:
        return 1
    for period in range(2, min(MAX_PERIOD, len(kinds) // 2) + 1):
        if all(a == b for a, b in zip(kinds, kinds[period:], strict=False)):
            return period
    return None


def shortest_cover(cycle: Sequence[str]) -> tuple[int, int]:
    """(start, length) of the shortest cyclic stretch that holds every kind of the cycle; 1 <= start <= len."""
    wanted = len(set(cycle))
    best = (1, len(cycle))
    # Starts are tried from 1, the first window that leaves room for its lead-in step: a window that
    # was waited for is then the one chosen again.
    for start in range(1, len(cycle) + 1):
        seen: set[str] = set()
        for length in range(1, best[1]):
            seen.add(cycle[(start + length - 1) % len(cycle)])
            if len(seen) == wanted:
                best = (start, length)
                break
    return best


def decide(progress: Progress, settings: Settings) -> Decision:
    """The phase that follows the one that has just ended."""
    if progress.last in (Phase.WARMUP, Phase.RECORD):
        return Decision(Phase.UNPROFILED, settings.steps)
    if progress.last is Phase.SAMPLE:
        return ending(settings)
    if progress.last is not Phase.UNPROFILED:
        return Decision(Phase.DONE, 0)
    kinds = kinds_of(progress.steps)
    period = find_period(kinds)
    if searching(kinds, period, progress, settings):
        return Decision(Phase.UNPROFILED, settings.steps)
    return (after_second_block if progress.windows else after_first_block)(progress, settings, kinds, period)


def searching(kinds: Sequence[str], period: int | None, progress: Progress, settings: Settings) -> bool:
    """Whether to look on for the period of a pattern that varies.

    Not for long before there is a recording: the program may end. A better one may replace it.
    """
    if progress.windows == 0 and len(kinds) >= FIRST_LOOK * settings.unprofiled:
        return False
    return period is None and len(kinds) < 2 * MAX_PERIOD and progress.seconds < SEARCH_SECONDS


def after_first_block(progress: Progress, settings: Settings, kinds: Sequence[str], period: int | None) -> Decision:
    count = block_length(progress, 0)
    if count < settings.unprofiled and progress.seconds < WATCH_SECONDS:
        return Decision(Phase.UNPROFILED, settings.steps)
    return recording(kinds, period, settings) if settings.record else ending(settings)


def recording(kinds: Sequence[str], period: int | None, settings: Settings) -> Decision:
    """Record now, or wait for the right place in the cycle."""
    if period is None:
        return Decision(Phase.RECORD, settings.steps)
    length = period * math.ceil(settings.steps / period)
    if length <= settings.unprofiled:
        return Decision(Phase.RECORD, length)
    start, cover = shortest_cover(kinds[-period:])  # the cycle's first entry is the kind of the next step
    wait = start - 1
    return Decision(Phase.UNPROFILED, wait) if wait else Decision(Phase.RECORD, min(cover, settings.unprofiled))


def after_second_block(progress: Progress, settings: Settings, kinds: Sequence[str], period: int | None) -> Decision:
    kind_of = {step.index: kind for step, kind in zip(progress.steps, kinds, strict=True)}
    missed = set(kinds) - {kind_of[index] for index in progress.recorded}
    watched = watched_enough(progress)
    # A second window soon, since the program may end; what looked like a period then may have been none.
    if missed and period is not None and (progress.windows == 1 or (progress.windows == 2 and watched)):
        return recording(kinds, period, settings)
    cycle = period or 1
    wanted = cycle * math.ceil(min(settings.unprofiled, block_length(progress, 0)) / cycle)
    if block_length(progress, 1) < wanted or not watched:
        return Decision(Phase.UNPROFILED, settings.steps)
    if progress.unsampled:
        return Decision(Phase.SAMPLE, period or settings.steps)
    return ending(settings)


def watched_enough(progress: Progress) -> bool:
    """Whether a rare kind of step would have been seen by now, and no series of them seems to have begun."""
    if len(progress.steps) < 2 * MAX_PERIOD and progress.seconds <= WATCH_SECONDS:
        return False
    return progress.seconds >= SEARCH_SECONDS or not may_begin_series(progress.steps)


def block_length(progress: Progress, block: int) -> int:
    return sum(1 for step in progress.steps if step.block == block and step.ns is not None)


def ending(settings: Settings) -> Decision:
    # Two more steps, so that every rank has heard of the end before the first one leaves.
    return Decision(Phase.STOP, 2) if settings.stop else Decision(Phase.DONE, 0)


def whole_periods(durations: Sequence[int], period: int | None) -> Sequence[int]:
    """The last whole periods of a block; all of it where no period is known."""
    return durations[len(durations) % (period or 1) :]


def weights(recorded: Sequence[str], seen: Sequence[str], period: int | None) -> list[float]:
    """A weight for each recorded step: how often its kind occurs, shared among its recorded copies.

    `recorded` and `seen` are kinds; frequencies are taken over the last whole periods of `seen`.
    Kinds that were not recorded are left out, and the weights sum to 1.
    """
    cycle = period or 1
    counts = Counter(seen[len(seen) % cycle :] or seen)
    copies = Counter(recorded)
    raw = [max(counts[kind], 1) / copies[kind] for kind in recorded]
    total = sum(raw)
    return [value / total for value in raw]
