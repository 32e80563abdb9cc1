"""Why the recorded steps are not like the unprofiled ones: what the run's record tells of it, and what to do."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from qrprof.profiler import units
from qrprof.profiler.noise import frequency, lasting_drift
from qrprof.profiler.recording.plan import FAR, Settings
from qrprof.profiler.runinfo import RunInfo

MUCH: Final = 0.1  # of the time of the unprofiled steps
UNSTEADY: Final = 0.1  # of the step: what it may change by from before the recording to after it
UNLIKE: Final = "the recorded steps are not like the others; record more of them (--steps)"


def cause(runs: Sequence[RunInfo], recorded_ns: float) -> str:
    """Why the recorded mean step does not fit the unprofiled one, in one sentence: by the first run that shows it."""
    found = [rare(run, recorded_ns) or unsteady(run) for run in runs]
    return next((sentence for sentence in found if sentence), UNLIKE)


def rare(run: RunInfo, recorded_ns: float) -> str | None:
    """That rare steps hold much of the time, and none of them was recorded; None where that is not so."""
    by_index = {block.first_step + i: ns for block in run.unprofiled for i, ns in enumerate(block.durations_ns)}
    step = run.step_ns()
    if step is None or step <= recorded_ns:
        return None
    missed = unrecorded(run) or far(run, by_index)
    held = sum(by_index[index] for index in missed) / sum(by_index.values())
    if held < MUCH:
        return None
    steps = longest_stretch(missed, sorted(by_index))
    settings = Settings(steps=steps)
    needed = settings.warmup + settings.unprofiled + steps + 2
    share, run_long = units.share(held), f"in a run of {needed} steps or more"
    if len(missed) > 1:
        return (
            f"{len(missed)} of {len(by_index)} unprofiled steps hold {share} of the time, and none like them was "
            f"recorded; give --steps {steps}, {run_long}"
        )
    return (  # one alone shows no distance
        f"1 of {len(by_index)} unprofiled steps holds {share} of the time, and none like it was recorded; if it came "
        f"once, --warmup {missed[0] + 1} leaves it out, else give --steps {steps} or more, {run_long}"
    )


def unrecorded(run: RunInfo) -> list[int]:
    """The unprofiled steps of kinds of which no step was recorded."""
    known = {step.kind for step in run.recorded}
    return [
        block.first_step + i
        for block in run.unprofiled
        for i, kind in enumerate(block.kinds)
        if known and kind not in known
    ]


def far(run: RunInfo, times: dict[int, int]) -> list[int]:
    """Steps far above the median, too few for one to be expected among the recorded ones.

    Where one had been recorded all the same, the recorded mean step would not be the shorter one.
    """
    limit = FAR * median(times.values())
    found = [index for index, ns in times.items() if ns > limit]
    least = min((step.weight for step in run.recorded), default=0.0)
    return found if len(found) <= least * len(times) else []


def longest_stretch(marked: Sequence[int], steps: Sequence[int]) -> int:
    """So many steps in a row hold a marked one, wherever they begin, as far as `steps` shows it."""
    ends = [steps[0] - 1, *marked, steps[-1] + 1]
    return max(b - a for a, b in pairwise(ends))


def unsteady(run: RunInfo) -> str | None:
    """That steps took another time after the recording than before it, by more than chance."""
    moved = lasting_drift(run.unprofiled, frequency(run))
    if abs(moved) <= UNSTEADY:
        return None
    return (
        f"the unprofiled steps after the recording took {units.share(abs(moved))} {'longer' if moved > 0 else 'less'} "
        "than those before it: the program or the machine was not steady; trace again when it is quiet"
    )
