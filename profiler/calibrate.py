"""From recorded times to the unprofiled step: T = the mean unprofiled step.

What is calibrated are pieces: stretches of time in which no thread's innermost row changes. Some keep a known time: on
a device its busy time as recorded, since a profiler hardly slows a kernel; on a CPU linalg ops that the recorder timed
without the profiler. The others, which are the host's doing, lose the profiler's cost. It falls on the begin and end of
each recorded event, whatever the event took, so each piece loses the same ns, but keeps LOWEST of its time; what it
loses is found so that all pieces sum to T. Where the unprofiled step is the longer one they take one factor.

Nothing is calibrated (the partition is withheld) where busy time exceeds T by more than 2 %, or where the others
together would shrink or grow by a factor outside 0.3..1.1. A device that waited for a slowed host alone does not wait
in T at all: where the profiler's cost was gauged, and the host's in a step is what must go, they may shrink to nothing;
busy time of up to 2 % more than T then takes one factor. A step that was recorded within 2 % of T is undisturbed: there
that factor, a ratio of small differences, says nothing. On a device all its pieces take the factor T / recorded; on a
CPU they do so where the other one is out of bounds.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from qrprof.profiler import units
from qrprof.profiler.cost import LOWEST, cost_of, without_cost
from qrprof.profiler.facts import Facts, feeding_threads
from qrprof.profiler.gauge import host_cost
from qrprof.profiler.idle import Pieces, blame
from qrprof.profiler.linalg import LINALG_DRIVERS, Signature, by_signature, row_signature
from qrprof.profiler.nesting import Floats, Ints
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.steps import weight_at
from qrprof.profiler.sums import Columns
from qrprof.profiler.unlike import cause

TOLERANCE: Final = 0.02  # of T
INPUTS: Final = ("key", "shapes", "dtypes")
HIGHEST: Final = 1.1  # of what remains of all pieces together; the least is LOWEST


@dataclass(frozen=True)
class Calibration:
    ns: Floats  # by piece, per mean unprofiled step; as recorded where nothing is calibrated
    factor: float | None  # of the pieces without a known time, together
    withheld: str | None = None


def calibrate(
    recorded: Floats,
    weight: Floats,
    known: Floats,
    run: RunInfo | None,
    on_device: bool,
    gauged: Callable[[], float] = lambda: 0.0,
) -> Calibration:
    """Make pieces sum to the unprofiled step.

    By piece: `recorded` ns per mean step, the `weight` of its step in the mean step, and the `known` ns that it keeps,
    NaN where it has to be found. `gauged` tells what the profiler cost the host in a mean step, ns, as far as that was
    measured; it is asked only where that decides. Without a record, or a timed step, pieces stay as recorded.
    """
    step, total = run.step_ns() if run else None, float(recorded.sum())
    if run is None or step is None:
        return Calibration(recorded, None)
    undisturbed = abs(step - total) <= TOLERANCE * step
    if on_device and undisturbed:
        return uniform(recorded, step)
    sought = np.isnan(known)
    held, rest = float(known[~sought].sum()), float(recorded[sought].sum())
    left = step - held
    lowest = 0.0 if left < LOWEST * rest and 0 < total - step <= gauged() else LOWEST
    if lowest == 0.0 and -TOLERANCE * step <= left < 0:  # busy all the time, give or take
        left, known = 0.0, known * (step / held)
    factor = left / rest if rest > 0 else float("inf")
    reason = refusal(step, total, held, factor, lowest, on_device)
    if reason is None:
        ns = known.copy()
        ns[sought] = fitted(recorded[sought], weight[sought], left)
        return Calibration(ns, factor)
    if undisturbed:
        return uniform(recorded, step)
    return Calibration(recorded, None, f"{reason}: {cause([run], total)}")


def fitted(recorded: Floats, weight: Floats, total: float) -> Floats:
    """Pieces that sum to `total`; where that is less than LOWEST of their sum, by one factor from there on."""
    surplus = float(recorded.sum()) - total
    ns = recorded if surplus <= 0 else without_cost(recorded, cost_of(recorded, weight, surplus) * weight)
    closed: Floats = ns * (total / ns.sum())
    return closed


def uniform(recorded: Floats, step: float) -> Calibration:
    factor = step / float(recorded.sum())
    return Calibration(recorded * factor, factor)


@dataclass(frozen=True)
class DeviceTimes:
    """The steps' device windows in pieces: items of work, and idle time as `idle.blame` cuts it."""

    queued: Pieces  # as recorded
    starved: Pieces
    busy_ns: Floats  # by item of work, calibrated
    queued_ns: Floats  # by piece
    starved_ns: Floats
    calibration: Calibration  # of all of these


def calibrate_device(facts: Facts, run: RunInfo | None) -> DeviceTimes:
    """Calibrate the time of the devices: see `calibrate`."""
    busy = facts.swept.ns
    queued, starved = blame(facts.host, facts.causes, facts.work, facts.swept.idle, feeding_threads(facts))
    recorded = np.concatenate([busy, queued.ns, starved.ns])
    starts = np.concatenate([facts.work.start, queued.start, starved.start])
    known = np.concatenate([busy, np.full(len(recorded) - len(busy), np.nan)])
    weight = weight_at(facts.steps.device, starts)
    found = calibrate(recorded, weight, known, run, on_device=True, gauged=lambda: host_cost(facts, run))
    busy_ns, queued_ns, starved_ns = np.split(found.ns, np.cumsum([len(busy), len(queued.ns)]))
    return DeviceTimes(queued, starved, busy_ns, queued_ns, starved_ns, found)


def timed(pieces: Columns, recorded: Floats, run: RunInfo | None) -> Floats:
    """By piece of an op the time that the recorder measured without the profiler; NaN: it is of no such linalg op.

    `pieces` has the columns key, shapes and dtypes. A measured time is spread over its pieces as they were recorded.
    """
    calls = run.linalg if run else []
    measured = by_signature([call for call in calls if call.device == "cpu" and call.ns_per_step is not None])
    drivers = np.flatnonzero(pd.Series(pieces["key"], dtype=object).isin(LINALG_DRIVERS).to_numpy())
    inputs = pd.DataFrame({name: pieces[name][drivers] for name in INPUTS}, dtype=object)
    groups: dict[Signature, list[Ints]] = defaultdict(list)
    for places in inputs.groupby(list(INPUTS), sort=False).indices.values():
        signature = row_signature(*inputs.iloc[places[0]])
        if signature in measured:
            groups[signature].append(drivers[places])
    found = np.full(len(recorded), np.nan)
    for signature, parts in groups.items():
        mine = np.concatenate(parts)
        spent = sum(call.ns_per_step or 0.0 for call in measured[signature])
        found[mine] = recorded[mine] * spent / recorded[mine].sum()
    return found


def refusal(step: float, recorded: float, held: float, factor: float, lowest: float, on_device: bool) -> str | None:
    """In what way a factor, `lowest` at least, cannot be believed; None where it can."""
    if on_device and held > (1 + TOLERANCE) * step:
        return (
            f"device work alone takes {units.time(held)} of a recorded step, more than the whole unprofiled step of "
            f"{units.time(step)}"
        )
    if not lowest <= factor <= HIGHEST:
        what = "device work" if on_device else "linalg timed without the profiler"
        return (
            f"to turn a recorded step of {units.time(recorded)} ({units.time(held)} of it {what}) into the unprofiled "
            f"{units.time(step)}, the rest would be scaled by {factor:.2f}, outside {lowest:g} to {HIGHEST}"
        )
    return None
