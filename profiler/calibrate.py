"""From recorded times to the unprofiled step: T = the mean unprofiled step.

Device: busy rows keep their recorded durations, since a profiler hardly slows a kernel; the idle rows, which
are the host's doing, take one factor f = (T - busy) / idle. CPU: rows of linalg ops that the recorder timed
without the profiler take those times, all others the factor f = (T - timed) / (recorded - their recorded part).

Nothing is calibrated (the partition is withheld) where busy exceeds T by more than 2 %, or f is outside
0.3..1.1. A step that was recorded within 2 % of T is undisturbed: there f, a ratio of small differences,
says nothing. On a device all its rows take the factor T / recorded; on a CPU they do so where f is out of bounds.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from qrprof.profiler import units
from qrprof.profiler.linalg import LINALG_DRIVERS, Signature, by_signature, row_signature
from qrprof.profiler.nesting import Floats
from qrprof.profiler.runinfo import RunInfo

TOLERANCE: Final = 0.02  # of T
LOWEST, HIGHEST = 0.3, 1.1  # of the factor


@dataclass(frozen=True)
class Calibration:
    ns: Floats  # by row, per mean unprofiled step; as recorded where there is no factor
    factor: float | None
    withheld: str | None = None


def calibrate(rows: pd.DataFrame, run: RunInfo, on_device: bool) -> Calibration:
    """Scale the `recorded_ns` of a partition's rows so that they sum to the unprofiled step."""
    recorded = rows["recorded_ns"].to_numpy(dtype=np.float64)
    step = run.step_ns()
    if step is None:
        return Calibration(recorded, None)
    undisturbed = abs(step - recorded.sum()) <= TOLERANCE * step
    if on_device and undisturbed:
        return uniform(recorded, step)
    fixed = recorded.copy() if on_device else timed(rows, run)
    kept = (rows["kind"] == "op").to_numpy() if on_device else ~np.isnan(fixed)
    held, rest = float(fixed[kept].sum()), float(recorded[~kept].sum())
    factor = (step - held) / rest if rest > 0 else float("inf")
    reason = refusal(step, float(recorded.sum()), held, factor, on_device)
    if reason is None:
        return Calibration(np.where(kept, fixed, recorded * factor), factor)
    return uniform(recorded, step) if undisturbed else Calibration(recorded, None, reason)


def calibrate_idle(busy_ns: float, idle_ns: float, run: RunInfo | None) -> Calibration:
    """The factor of a device's idle time, as `calibrate` gives it; none without a record."""
    rows = pd.DataFrame({"kind": ["op", "gap"], "recorded_ns": [busy_ns, idle_ns]})
    return calibrate(rows, run, on_device=True) if run else Calibration(rows["recorded_ns"].to_numpy(), None)


def uniform(recorded: Floats, step: float) -> Calibration:
    factor = step / float(recorded.sum())
    return Calibration(recorded * factor, factor)


def timed(rows: pd.DataFrame, run: RunInfo) -> Floats:
    """By row the host time that the recorder measured for its linalg op without the profiler; NaN: not measured.

    A measured time is spread over its rows (phases, places) as they were recorded.
    """
    measured = by_signature([call for call in run.linalg if call.device == "cpu" and call.ns_per_step is not None])
    groups: dict[Signature, list[int]] = defaultdict(list)
    for number, key in enumerate(zip(rows["key"], rows["shapes"], rows["dtypes"], strict=True)):
        signature = row_signature(*key) if key[0] in LINALG_DRIVERS else None
        if signature in measured:
            groups[signature].append(number)
    found = np.full(len(rows), np.nan)
    recorded = rows["recorded_ns"].to_numpy(dtype=np.float64)
    for signature, numbers in groups.items():
        part = recorded[numbers]
        if part.sum() > 0:
            found[numbers] = part * sum(call.ns_per_step or 0.0 for call in measured[signature]) / part.sum()
    return found


def refusal(step: float, recorded: float, held: float, factor: float, on_device: bool) -> str | None:
    """Why the factor cannot be believed, in one sentence; None where it can."""
    unlike = "the recorded steps are not like the others; record more of them (--steps)"
    if on_device and held > (1 + TOLERANCE) * step:
        return (
            f"device work alone takes {units.time(held)} of a recorded step, more than the whole unprofiled step of "
            f"{units.time(step)}: {unlike}"
        )
    if not LOWEST <= factor <= HIGHEST:
        what = "device work" if on_device else "linalg timed without the profiler"
        return (
            f"to turn a recorded step of {units.time(recorded)} ({units.time(held)} of it {what}) into the unprofiled "
            f"{units.time(step)}, the rest would be scaled by {factor:.2f}, outside {LOWEST} to {HIGHEST}: {unlike}"
        )
    return None
