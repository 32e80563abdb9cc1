"""What calls would take with the included kernels, as they were timed on the run's device."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from qrprof.kernels import registry
from qrprof.kernels.times import Timed, times_for
from qrprof.planner.roofline import Levels
from qrprof.profiler.linalg import Signature, row_signature
from qrprof.profiler.partition import Partition
from qrprof.profiler.runinfo import RunInfo


class PerCall(NamedTuple):
    """ns of one call: of the device, or of a CPU, and until the caller may go on."""

    levels: Levels
    host: float


def measured_for(run: RunInfo) -> Mapping[Signature, PerCall]:
    """By the signature of the trace's rows; empty where nothing was timed."""
    return {one.signature: per_call(one) for one in times_for(run)}


def per_call(one: Timed) -> PerCall:
    """A program that keeps its device busy has the device's time; one that waits for each result, all of a call."""
    own = one.own
    return PerCall(Levels(own.device_p05, own.device, max(own.device_p95, own.call)), own.host)


@dataclass(frozen=True)
class Called:
    """What a run has of one signature, in a mean step."""

    signature: Signature
    calls: float
    ns: float


def calls_of(found: Partition) -> list[Called]:
    """The calls of ops that have an included kernel, those with the most time first."""
    keys = ["key", "shapes", "dtypes"]
    counts = found.calls.groupby(keys, observed=True)["calls"].sum().to_dict()
    times = found.rows.groupby(keys, observed=True)["ns"].sum().reset_index()
    sums: dict[Signature, tuple[float, float]] = {}
    for key, shapes, dtypes, ns in times.itertuples(index=False):
        signature = row_signature(key, shapes, dtypes) if registry.spec(key) else None
        if signature is not None:
            count, before = sums.get(signature, (0.0, 0.0))
            sums[signature] = count + float(counts.get((key, shapes, dtypes), 0.0)), before + float(ns)
    return sorted((Called(one, *of) for one, of in sums.items()), key=lambda called: -called.ns)


def untimed(found: Partition, run: RunInfo) -> list[Called]:
    """Those that an included kernel serves on the run's device, and that were not timed there."""
    device = "cuda" if found.on_device else "cpu"
    known = measured_for(run)
    return [one for one in calls_of(found) if one.signature not in known and served(one, device)]


def served(one: Called, device: str) -> bool:
    op, shape, dtype = one.signature
    return registry.served(op, device, dtype, shape)
