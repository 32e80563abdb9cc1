"""The ranks of a run replayed together: what a rank gains is worth nothing where all wait for another one.

Each rank keeps its own graph; where their collectives were matched, members wait for the last one to come (`meetings`).
What is changed, and what the profiler is said to have cost, is so in the recorded steps alone: outside of them no
collective ties the ranks to each other, and they stay as recorded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

import numpy as np

from qrprof.planner.replay.changes import Changes, unchanged
from qrprof.planner.replay.graph import Graph, Program, compile_steps, run
from qrprof.planner.replay.meetings import Meetings, Tied, clocks, find_meetings, tie, transferring
from qrprof.planner.replay.model import CLOSE, ERROR, Model, mean_step, model_of, weights_of
from qrprof.planner.replay.search import zero_of
from qrprof.profiler import units
from qrprof.profiler.calibrate import HIGHEST, TOLERANCE
from qrprof.profiler.collectives import Clock, Collectives, communication, match
from qrprof.profiler.cost import without_cost
from qrprof.profiler.coverage import Verdict, cover
from qrprof.profiler.events import HOST
from qrprof.profiler.facts import Facts
from qrprof.profiler.gauge import segment_cost
from qrprof.profiler.nesting import Floats, Mask, pick
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.steps import weight_at
from qrprof.profiler.unlike import cause

UNKNOWN: Final = "the ranks' clocks have no common zero, and no collective that ends everywhere at once lines them up"


@dataclass(frozen=True)
class Joint:
    """`models` are by rank: calibrated together, and their replays are of all ranks together."""

    models: Mapping[int, Model]
    meetings: Meetings
    tied: Tied
    program: Program
    clock: Clock
    left_out: int  # communication in the steps that keeps its recorded duration, as no other rank has its counterpart
    withheld: str | None  # why it must not be believed


@dataclass(frozen=True)
class RankReplay:
    """Times are ns of a mean step."""

    step_ns: float
    wait_ns: float  # in collectives, for others to come


@dataclass(frozen=True)
class Replay:
    """`step_ns` is the mean step of all ranks together, from when the last one is done with a step until the last one
    is done with the next; None where no collective ties them.
    """

    ranks: Mapping[int, RankReplay]
    step_ns: float | None


def joint_of(facts: Mapping[int, Facts], runs: Mapping[int, RunInfo] | None = None) -> Joint:
    """The model of a run's ranks together, by rank. `runs` know how many there are, and the unprofiled steps."""
    known = runs or {}
    plain = {rank: model_of(facts[rank]) for rank in sorted(facts)}
    found = match({rank: communication(facts[rank].trace, facts[rank]) for rank in plain})
    joint = join(plain, found)
    replayed = replay(joint, {}).ranks
    joint = _with(joint, {rank: {"replayed_ns": one.step_ns, "base_ns": one.step_ns} for rank, one in replayed.items()})
    steps = [known[rank].step_ns() if rank in known else None for rank in plain]
    reason = _unfit(joint, found, max((one.world_size for one in known.values()), default=len(plain)))
    measured = [ns for ns in steps if ns is not None]
    if reason or len(measured) < len(steps):
        return replace(joint, withheld=reason)
    gauged = [segment_cost(facts[rank], known[rank]) for rank in plain]
    cost = None if None in gauged else median(ns for ns in gauged if ns is not None)
    tuned = calibrated(joint, sum(measured) / len(measured), cost)
    if tuned.withheld is None:
        return tuned
    return replace(tuned, withheld=f"{tuned.withheld}: {cause([known[rank] for rank in plain], _mean(joint))}")


def join(plain: Mapping[int, Model], found: Collectives) -> Joint:
    """Tie models of single ranks to each other."""
    on_host = (found.members["device"] == HOST).to_numpy(dtype=bool)
    followed = replace(found, members=found.members[~on_host])
    graphs = {rank: model.graph for rank, model in plain.items()}
    ahead = clocks(graphs, followed)
    meetings = find_meetings(graphs, followed, ahead)
    tied = tie(graphs, meetings, ahead)
    models = {rank: replace(model, graph=transferring(model.graph, meetings, rank)) for rank, model in plain.items()}
    left_out = found.left_out + len(found.members) - len(meetings.rank)
    return Joint(models, meetings, tied, compile_steps(tied.net), found.clock, left_out, None)


def _with(joint: Joint, fields: Mapping[int, Mapping[str, Any]]) -> Joint:
    return replace(joint, models={rank: replace(joint.models[rank], **fields[rank]) for rank in joint.models})


def _unfit(joint: Joint, found: Collectives, world_size: int) -> str | None:
    """Why the unchanged replay disqualifies the ranks."""
    if len(joint.models) < world_size:
        return f"{len(joint.models)} of {world_size} ranks are there, and any other may be waited for"
    if joint.clock.name == "unknown":
        return UNKNOWN
    if (found.members["device"] == HOST).any():
        return "its ranks communicate on the host, where no trace shows what waits for a collective"
    for rank, model in joint.models.items():
        if model.withheld:
            return f"rank {rank}: {model.withheld}"
        if abs(model.error) > ERROR[cover(model.graph.facts).verdict == Verdict.TRUSTED]:
            return f"rank {rank}: the unchanged replay is off by {units.share(abs(model.error))} of its recorded step"
    return None


# --- replays


def replay(joint: Joint, changes: Mapping[int, Changes]) -> Replay:
    """The mean step with these changes, which are by rank; a rank without any is as it is."""
    asked = {
        rank: in_steps(model.graph, changes[rank]) if rank in changes else unchanged(model.graph)
        for rank, model in joint.models.items()
    }
    own = [weights_of(model, asked[rank]) for rank, model in joint.models.items()]
    weights = np.concatenate([joint.tied.begins, *own, np.zeros(len(joint.meetings.rank))])
    slower = next(iter(joint.models.values())).uniform  # one for all ranks
    times = run(joint.program, weights[joint.tied.net.edges.row]) * slower
    return Replay({rank: _of_rank(joint, rank, times) for rank in joint.models}, _of_all(joint, times))


def _of_rank(joint: Joint, rank: int, times: Floats) -> RankReplay:
    graph, meetings, first = joint.models[rank].graph, joint.meetings, joint.tied.first[rank]
    mine = meetings.rank == rank
    arrived = times[first + graph.item0 + meetings.item[mine]]
    waits = times[joint.tied.met + meetings.collective[mine]] - arrived
    step = mean_step(graph, times[first : first + len(graph.nodes.time)])
    return RankReplay(step, float((waits * meetings.weight[mine]).sum()))


def _of_all(joint: Joint, times: Floats) -> float | None:
    models, first = joint.models, joint.tied.first
    steps = [model.graph.facts.steps for model in models.values()]
    if not joint.meetings.count or any(one.numbers.tolist() != steps[0].numbers.tolist() for one in steps):
        return None
    bounds = [times[first[rank] + model.graph.bounds] for rank, model in models.items()]
    begin, end = np.split(np.max(bounds, axis=0), 2)
    return float(((end - begin) * steps[0].device.weight).sum())


def in_steps(graph: Graph, changes: Changes) -> Changes:
    """What of the changes is in the recorded steps."""
    facts, edges = graph.facts, graph.edges
    work, steps = facts.work, facts.steps
    items = np.where(work.launch >= 0, weight_at(steps.host, work.launched), weight_at(steps.device, work.start)) > 0
    called = pick(facts.host.start, edges.row, 0)
    moment = np.where(edges.row >= 0, called, graph.nodes.time[edges.source])
    inside = np.where(edges.scales >= 0, pick(items, edges.scales, False), weight_at(steps.host, moment) > 0)
    return Changes(
        segments=np.where(segments_in_steps(graph), changes.segments, 1.0),
        items=np.where(items, changes.items, 1.0),
        fixed=np.where(inside, changes.fixed, 1.0),
        floor=np.where(inside, changes.floor, 0.0),
        cut=changes.cut & inside,
    )


def segments_in_steps(graph: Graph) -> Mask:
    inside: Mask = weight_at(graph.facts.steps.host, graph.segments.start) > 0
    return inside


# --- calibration


def calibrated(joint: Joint, step_ns: float, gauged: float | None) -> Joint:
    """Take the profiler's cost off all hosts, so much a segment that the ranks' mean step meets `step_ns`.

    One cost for all: a rank that waits for others shows none of its own. As for a single rank, steps recorded within
    2 % of the unprofiled ones, or faster by up to a tenth, take one factor instead, and their hosts lose what was
    `gauged`, ns a segment, where that is known.
    """
    now = _mean(joint)
    if now <= step_ns * (1 + TOLERANCE):
        slower = step_ns / now
        if slower > HIGHEST:
            return replace(joint, withheld=_too_far(now, now, step_ns))
        return _with_base(_hidden(_uniform(joint, slower), step_ns, gauged))
    most = max(float(model.graph.segments.ns.max(initial=0.0)) for model in joint.models.values())
    cost = zero_of(lambda cost: _mean(_without(joint, cost)) - step_ns, 0.0, most, CLOSE * step_ns)
    if cost is None:
        return replace(joint, withheld=_too_far(_mean(_without(joint, most)), now, step_ns))
    return _with_base(_without(joint, cost))


def _hidden(joint: Joint, step_ns: float, gauged: float | None) -> Joint:
    """Take what was gauged off hosts that the steps do not show: as for a single rank."""
    if gauged is None:
        return joint
    found = _without(joint, gauged)
    now = _mean(found)
    if now < step_ns * (1 - TOLERANCE):
        return joint
    return _uniform(found, next(iter(found.models.values())).uniform * step_ns / now)


def _uniform(joint: Joint, slower: float) -> Joint:
    return _with(joint, {rank: {"uniform": slower} for rank in joint.models})


def _without(joint: Joint, cost: float) -> Joint:
    def host_ns(graph: Graph) -> Floats:
        own = graph.segments.ns
        return np.where(segments_in_steps(graph), without_cost(own, cost), own)

    return _with(joint, {rank: {"host_ns": host_ns(model.graph)} for rank, model in joint.models.items()})


def _mean(joint: Joint) -> float:
    """Of the ranks' mean steps."""
    steps = [one.step_ns for one in replay(joint, {}).ranks.values()]
    return sum(steps) / len(steps)


def _with_base(joint: Joint) -> Joint:
    return _with(joint, {rank: {"base_ns": one.step_ns} for rank, one in replay(joint, {}).ranks.items()})


def _too_far(shortest: float, longest: float, step_ns: float) -> str:
    span = units.time(shortest) if shortest == longest else f"{units.time(shortest)} to {units.time(longest)}"
    return (
        f"the ranks' recorded steps replay in {span} whatever the profiler cost their hosts, and the unprofiled step "
        f"takes {units.time(step_ns)}"
    )
