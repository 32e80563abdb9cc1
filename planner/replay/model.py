"""A graph that has shown that it can replay its own record, calibrated to the unprofiled step."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from qrprof.planner.replay.build import build
from qrprof.planner.replay.changes import Changes, unchanged
from qrprof.planner.replay.graph import NONE, Graph, Program, compile_steps, run, weights
from qrprof.planner.replay.search import zero_of
from qrprof.profiler import units
from qrprof.profiler.calibrate import HIGHEST, TOLERANCE
from qrprof.profiler.cost import without_cost
from qrprof.profiler.coverage import Coverage, cover
from qrprof.profiler.facts import Facts
from qrprof.profiler.gauge import segment_cost
from qrprof.profiler.linalg import LINALG_DRIVERS, by_signature, row_signature
from qrprof.profiler.nesting import Floats, Ints, Strings, pick
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.steps import weight_at, window_at
from qrprof.profiler.unlike import cause

ERROR: Final = {True: 0.03, False: 0.05}  # most that the unchanged replay of a trusted, of a partial trace may be off
EXPLAINED: Final = {True: 0.9, False: 0.8}  # least share of device starts that follow from an edge
ALIKE: Final = 0.9  # of two steps' device work, to compare them
CLOSE: Final = 1e-8  # of the step: a replay that near meets it


@dataclass(frozen=True)
class Model:
    """Times are ns of a mean step."""

    graph: Graph
    program: Program
    host_ns: Floats  # by segment of the host, in the unprofiled program
    uniform: float  # the factor on all times, where no cost of the profiler can be told
    recorded_ns: float
    replayed_ns: float  # with nothing changed, uncalibrated
    base_ns: float  # with nothing changed, calibrated: what gains are of
    next_step_error: float | None  # of a step replayed with the residuals of the one before it; None: no two are alike
    withheld: str | None  # why it must not be believed

    @property
    def error(self) -> float:
        """Of the unchanged replay against the recorded step, signed."""
        return self.replayed_ns / self.recorded_ns - 1

    @property
    def explained(self) -> float | None:
        return self.graph.explained


def model_of(facts: Facts, run: RunInfo | None = None) -> Model:
    """The model of a run's trace. `run` knows the unprofiled step and, on a CPU, what its linalg calls took in it."""
    graph = build(facts)
    known = np.full(len(graph.segments.row), np.nan)
    gauged = None if graph.explained is None else segment_cost(facts, run)
    if run is not None and graph.explained is None:
        known = measured(graph, run)
    return make_model(graph, run, known, gauged)


def measured(graph: Graph, run: RunInfo) -> Floats:
    """By segment its time in the linalg calls of the unprofiled program, ns; NaN where it belongs to no such call."""
    facts, pieces = graph.facts, graph.segments
    calls = by_signature([call for call in run.linalg if call.ns_per_step is not None])
    owner = pick(facts.owners.row, pieces.row, NONE)
    known = np.full(len(owner), np.nan)
    drivers = np.unique(owner[(owner >= 0) & np.isin(pick(facts.owners.name, owner, ""), list(LINALG_DRIVERS))])
    columns = facts.host.rows.loc[drivers, ["name", "shapes", "dtypes"]].astype(str)
    signatures = [row_signature(*row) for row in columns.itertuples(index=False, name=None)]
    recorded = pieces.ns * weight_at(facts.steps.host, pieces.start)
    for signature in {found for found in signatures if found in calls}:
        mine = np.isin(owner, drivers[[found == signature for found in signatures]])
        spent = sum(call.ns_per_step or 0.0 for call in calls[signature])
        if recorded[mine].sum() > 0:
            known[mine] = pieces.ns[mine] * spent / recorded[mine].sum()
    return known


def make_model(graph: Graph, run: RunInfo | None, known: Floats, gauged: float | None = None) -> Model:
    """Replay and calibrate a graph.

    Without a `run` that knows the unprofiled step times stay as recorded. `known` are the times of segments that were
    measured without the profiler, ns, and NaN for the others. `gauged` is the profiler's cost a segment, ns, where it
    was measured.
    """
    own = graph.segments.ns
    plain = Model(graph, compile_steps(graph), own, 1.0, graph.facts.steps.device.mean_ns, 0.0, 0.0, None, None)
    replayed = step_of(plain, unchanged(graph))
    plain = replace(plain, replayed_ns=replayed, base_ns=replayed, next_step_error=next_step_error(plain))
    reason = _unfit(cover(graph.facts), plain)
    step_ns = run.step_ns() if run else None
    if run is None or step_ns is None or reason:
        return replace(plain, withheld=reason)
    found = calibrated(plain, step_ns, known, gauged)
    return replace(found, withheld=f"{found.withheld}: {cause([run], replayed)}") if found.withheld else found


def calibrated(model: Model, step_ns: float, known: Floats, gauged: float | None) -> Model:
    """Take the profiler's cost off the host, so much that the replay meets the unprofiled step.

    By the rule of `profiler.calibrate`: each segment loses the same ns, but keeps a share of LOWEST. A step that was
    recorded within 2 % of the unprofiled one, or on a device faster by up to a tenth, shows no such cost and takes one
    factor in all; on a device the host loses what was gauged. On a CPU that is so only where the segments without a
    known time cannot meet the unprofiled step.
    """
    now = step_of(model, unchanged(model.graph))
    slower, on_device = step_ns / now, model.explained is not None
    uniform = replace(model, uniform=slower, base_ns=step_ns)
    if on_device and now <= step_ns * (1 + TOLERANCE):
        return _hidden(uniform, gauged) if slower <= HIGHEST else replace(model, withheld=_too_far(now, now, step_ns))
    own = model.graph.segments.ns
    longer = step_of(replace(model, host_ns=np.where(np.isnan(known), own, known)), unchanged(model.graph)) < step_ns
    ends = (1.0, HIGHEST) if longer else (0.0, float(own.max(initial=0.0)))

    def tried(value: float) -> Model:
        scaled = own * value if longer else without_cost(own, value)
        return replace(model, host_ns=np.where(np.isnan(known), scaled, known))

    def off(value: float) -> float:
        return step_of(tried(value), unchanged(model.graph)) - step_ns

    value = zero_of(off, *ends, CLOSE * step_ns)
    if value is not None:
        found = tried(value)
        return replace(found, base_ns=step_of(found, unchanged(found.graph)))
    if abs(now - step_ns) <= TOLERANCE * step_ns:
        return uniform
    times = [step_of(tried(end), unchanged(model.graph)) for end in ends]
    return replace(model, withheld=_too_far(min(times), max(times), step_ns))


def _hidden(model: Model, gauged: float | None) -> Model:
    """Take what was gauged off a host whose steps do not show it: their device was the slower one.

    Where the step would become shorter by it, they do show it, and what was gauged is not what they hold.
    """
    if gauged is None:
        return model
    found = replace(model, host_ns=without_cost(model.graph.segments.ns, gauged))
    now = step_of(found, unchanged(found.graph))
    if now < model.base_ns * (1 - TOLERANCE):
        return model
    return replace(found, uniform=found.uniform * model.base_ns / now)


def _too_far(shortest: float, longest: float, step_ns: float) -> str:
    span = units.time(shortest) if shortest == longest else f"{units.time(shortest)} to {units.time(longest)}"
    return (
        f"the recorded steps replay in {span} whatever the profiler cost the host, and the unprofiled step takes "
        f"{units.time(step_ns)}"
    )


def times_of(model: Model, changes: Changes) -> Floats:
    """When each node comes, ns, with these changes."""
    return run(model.program, weights_of(model, changes)) * model.uniform


def weights_of(model: Model, changes: Changes) -> Floats:
    """The edges' weights with these changes, before the uniform factor."""
    graph = model.graph
    fixed = np.maximum(graph.edges.fixed * changes.fixed, np.minimum(graph.edges.fixed, changes.floor))
    segments = model.host_ns * changes.segments
    found = weights(graph, segments, graph.durations * changes.items, fixed)
    return np.where(changes.cut, -np.inf, found)


def step_of(model: Model, changes: Changes) -> float:
    """The mean step, ns, with these changes."""
    return mean_step(model.graph, times_of(model, changes))


def mean_step(graph: Graph, times: Floats) -> float:
    windows = graph.facts.steps.device
    bounds = times[graph.bounds]
    count = len(windows.weight)
    return float(((bounds[count:] - bounds[:count]) * windows.weight).sum())


def next_step_error(model: Model) -> float | None:
    """How far steps are off, together, when each item takes the residual of the same item of the step before.

    None where no two steps that follow each other do the same.
    """
    graph, work = model.graph, model.graph.facts.work
    windows = graph.facts.steps.device
    step = window_at(windows, work.start)
    twin = _twins(work.name, step)
    count = len(windows.start)
    paired = np.bincount(step[twin >= 0], minlength=count)
    size = np.bincount(step[step >= 0], minlength=count)
    alike = (paired >= ALIKE * size) & (paired > 0) & (np.append(0, size[:-1]) * ALIKE <= paired)
    if not alike.any():
        return None
    residual = np.zeros(len(work.start))
    late = graph.edges.scales >= 0
    residual[graph.edges.scales[late]] = graph.edges.residual[late]
    lent = np.where((twin >= 0) & pick(alike, step, False), pick(residual, twin, 0.0) - residual, 0.0)
    fixed = graph.edges.fixed + pick(lent, graph.edges.scales, 0.0)
    times = run(model.program, weights(graph, graph.segments.ns, graph.durations, fixed))[graph.bounds]
    replayed, recorded = (times[count:] - times[:count])[alike], (windows.end - windows.start)[alike]
    return float(replayed.sum() / recorded.sum() - 1)


def _twins(name: Strings, step: Ints) -> Ints:
    """By item the same one of the step before: of its name, by order; -1: there is none."""
    items = pd.DataFrame({"name": name, "step": step})
    items["turn"] = items.groupby(["step", "name"]).cumcount()
    items["item"] = np.arange(len(items))
    before = items[items["step"] >= 0].assign(step=lambda found: found["step"] + 1)
    joined = items.merge(before, on=["step", "name", "turn"], how="left", suffixes=("", "_before"))
    return joined["item_before"].fillna(-1).to_numpy(dtype=np.int64)


def _unfit(coverage: Coverage, model: Model) -> str | None:
    """Why the unchanged replay disqualifies the graph."""
    if coverage.abstains:
        return coverage.abstains
    trusted = coverage.verdict == "trusted"
    if abs(model.error) > ERROR[trusted]:
        return f"the unchanged replay is off by {units.share(abs(model.error))} of the recorded step"
    if model.explained is not None and model.explained < EXPLAINED[trusted]:
        return (
            f"only {units.share(model.explained)} of the device's starts follow from what the trace shows: "
            "events are missing, or something unseen holds the device up"
        )
    return None
