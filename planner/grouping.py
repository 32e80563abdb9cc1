"""What a step would gain if an adapter grouped its calls: by replay, with the time of one call for each shape."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from qrprof.kernels.adapters import Adapter, fitting
from qrprof.kernels.adapters.groups import Group, groups
from qrprof.planner.estimate import Basis, Estimate
from qrprof.planner.fixes import Fix
from qrprof.planner.measured import Called, PerCall
from qrprof.planner.replay.changes import both, change_rows, unchanged
from qrprof.planner.replay.covered import covered
from qrprof.planner.replay.model import Model, step_of
from qrprof.planner.roofline import Levels
from qrprof.profiler import units
from qrprof.profiler.facts import Facts
from qrprof.profiler.linalg import Signature, row_signature
from qrprof.profiler.nesting import Mask, pick
from qrprof.profiler.runinfo import RunInfo

QUICKEST: Final = 0  # of the levels of a time


@dataclass(frozen=True)
class Part:
    """The calls of one shape, and what a batch of them was timed to take. Times are ns of a mean step."""

    group: Group
    rows: Mask  # of the host, with all that the calls do
    now_ns: float
    grouped_ns: Levels
    on_host: float | None  # the factor of the host's time; None: the trace shows none


def batches(run: RunInfo, called: Sequence[Called]) -> list[Called]:
    """The calls that adapters would make of a run's, with the time of those that they replace: what is to be timed."""
    each = {one.signature: one.ns / one.calls for one in called if one.calls}
    found = [group for adapter in fitting(run) for group in groups(adapter, run)]
    return [Called(one.batch, one.share, one.share * one.count * each.get(one.single, 0.0)) for one in found]


def find_groupings(model: Model, run: RunInfo, measured: Mapping[Signature, PerCall]) -> list[Fix]:
    """For each adapter that fits the run and has a shape whose batch was timed (`qrprof probe`)."""
    found = [(adapter, parts_of(adapter, model, run, measured)) for adapter in fitting(run)]
    return [grouping(adapter, parts, model) for adapter, parts in found if parts]


def parts_of(adapter: Adapter, model: Model, run: RunInfo, measured: Mapping[Signature, PerCall]) -> list[Part]:
    found = []
    for group in groups(adapter, run):
        rows = rows_of(model.graph.facts, adapter.op, group)
        device_ns, host_ns = covered(model, change_rows(model.graph, rows, 0.0))
        now = device_ns or host_ns
        if group.batch in measured and now:
            call = measured[group.batch]
            batch = Levels(*(group.share * level for level in call.levels))
            # Without a device the host's time is what was timed, and hides behind nothing.
            on_host = min(group.share * call.host / host_ns, 1.0) if host_ns and device_ns else None
            found.append(Part(group, rows, now, batch, on_host))
    return found


def rows_of(facts: Facts, op: str, group: Group) -> Mask:
    columns = facts.host.rows[["name", "shapes", "dtypes"]].astype(str)
    called = columns[columns["name"] == op]
    signatures = [row_signature(*row) for row in called.itertuples(index=False, name=None)]
    mine = np.zeros(len(columns), dtype=bool)
    mine[np.flatnonzero(columns["name"] == op)] = [signature == group.single for signature in signatures]
    inside: Mask = pick(mine, facts.owners.row, False)
    return inside


def grouping(adapter: Adapter, parts: list[Part], model: Model) -> Fix:
    low, mid, high = sorted(max(model.base_ns - step_with(model, parts, level), 0.0) for level in range(3))
    # A replay knows least how much of the host's part hides behind the device: at best all of it does.
    hidden = [replace(part, on_host=None if part.on_host is None else 0.0) for part in parts]
    high = max(high, model.base_ns - step_with(model, hidden, QUICKEST))
    now, then = sum(part.now_ns for part in parts), sum(part.grouped_ns.mid for part in parts)
    calls = sum(part.group.count * part.group.share for part in parts)
    op = adapter.op.removeprefix("aten::")
    return Fix(
        key=f"fix:{adapter.name}",
        ns=now,
        gain_ns=Estimate(low, mid, high, Basis.MEASURED),
        ceiling_ns=max(model.base_ns - step_with(model, parts, None), 0.0),
        advice=f"Let the adapter group the calls of {adapter.optimizer}: qrprof swaps accept {adapter.name}.",
        why=f"{adapter.optimizer} makes {units.calls(calls)} calls of {op} a step, one matrix each, in"
        f" {units.time(now)}; timed on this device, one call for each shape takes {units.time(then)}.",
    )


def step_with(model: Model, parts: list[Part], level: int | None) -> float:
    """The mean step, ns, with calls that take that level of their times; None: no time."""
    changes = unchanged(model.graph)
    for part in parts:
        factor = 0.0 if level is None else min(part.grouped_ns[level] / part.now_ns, 1.0)
        on_host = None if level is None else part.on_host
        changes = both(changes, change_rows(model.graph, part.rows, factor, on_host))
    return step_of(model, changes)
