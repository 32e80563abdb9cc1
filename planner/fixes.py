"""Changes of the program that are no faster kernel, and what a replay says that the step would gain.

A fused optimizer: one kernel updates all parameters. What its step does before its first op (it gathers parameters and
their state) stays; the ops and the python between them go; the device moves each parameter, gradient and moment once.
How many there are is told by ops that meet one parameter each; the shapes of lists (foreach) are in no trace.

Exposed communication: collectives that hide wholly behind other work.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import orjson

from qrprof.planner.estimate import Basis, Estimate
from qrprof.planner.replay.changes import Changes, change_communication, unchanged
from qrprof.planner.replay.graph import NONE, Graph
from qrprof.planner.replay.model import Model, step_of
from qrprof.profiler import units
from qrprof.profiler.collectives import communicates
from qrprof.profiler.devices import Peaks
from qrprof.profiler.events import ANNOTATION, OP
from qrprof.profiler.facts import Facts, launch_weight
from qrprof.profiler.nesting import Mask, pick
from qrprof.profiler.owners import OPTIMIZER, OPTIMIZER_STEP, starting
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.steps import weight_at
from qrprof.profiler.work import AFTER_ALL

FUSED: Final = {"Adam": 28, "AdamW": 28, "SGD": 12, "Adagrad": 20}  # of torch.optim, and bytes moved for a parameter
FEW: Final = 8  # launches of an optimizer's step that is fused
FUSED_OP: Final = "aten::_fused_"
# The op that each parameter meets once in a step that is not fused.
UPDATES: Final = ("aten::addcdiv_", "aten::add_")


@dataclass(frozen=True)
class Fix:
    key: str
    ns: float  # of a mean step, that it is about
    gain_ns: Estimate
    ceiling_ns: float  # that would be gained if all of it went
    advice: str
    why: str


def find_fixes(model: Model, run: RunInfo, peaks: Peaks | None) -> list[Fix]:
    """The fixes that apply to a run whose model is not withheld."""
    found = (fused_optimizer(model, run, peaks), exposed_communication(model))
    return [fix for fix in found if fix is not None]


# --- the optimizer


def fused_optimizer(model: Model, run: RunInfo, peaks: Peaks | None) -> Fix | None:
    graph, facts = model.graph, model.graph.facts
    name = run.step_source.removeprefix("optimizer ")
    launched = launch_weight(facts)
    inside = facts.owners.phase == OPTIMIZER
    mine = pick(inside, facts.work.launch, False)
    launches = float(launched[mine].sum())
    if name not in FUSED or launches <= FEW or fused(facts):
        return None
    busy = float((graph.durations * launched)[mine].sum())
    remains = left_of(facts, FUSED[name], busy, peaks)
    leading, nothing = gathering(graph), np.zeros(len(graph.segments.row), dtype=bool)

    def gain(kept: Mask, device: float) -> float:
        return max(model.base_ns - step_of(model, _fused(graph, inside, kept, device)), 0.0)

    low = gain(leading | python(graph), 1.0 if remains is None else remains)
    mid = None if remains is None else max(low, gain(leading, remains))
    high = max(low, mid or 0.0, gain(nothing, remains or 0.0))
    return Fix(
        key="fix:fused-optimizer",
        ns=busy,
        gain_ns=Estimate(low, mid, high, Basis.CEILING if mid is None else Basis.ROOFLINE),
        ceiling_ns=gain(nothing, 0.0),
        advice=f"Give {name} fused=True: one kernel updates all parameters.",
        why=f"The step of {name} launches {units.calls(launches)} kernels that take {units.time(busy)} together.",
    )


def fused(facts: Facts) -> bool:
    """Whether an optimizer's step calls a fused kernel; of a large model it launches many."""
    return bool(((facts.owners.phase == OPTIMIZER) & starting(facts.host, FUSED_OP)).any())


def left_of(facts: Facts, bytes_moved: int, busy: float, peaks: Peaks | None) -> float | None:
    """What a fused kernel takes, of the device time of the step; None: not known."""
    count = updated(facts)
    if peaks is None or not count or not busy:
        return None
    return min(bytes_moved * count / peaks.copy_bytes_per_s * 1e9 / busy, 1.0)


def updated(facts: Facts) -> float:
    """Parameters that a mean step updates, by the shapes of the op that each of them meets once; 0: not recorded."""
    host = facts.host
    mine = (facts.owners.phase == OPTIMIZER) & (weight_at(facts.steps.host, host.start) > 0)
    for op in UPDATES:
        rows = np.flatnonzero(mine & (host.rows["name"] == op).to_numpy())
        shapes = host.rows["shapes"].astype(str).iloc[rows]
        weight = weight_at(facts.steps.host, host.start[rows])
        if len(rows):
            return float(sum(elements(text) * one for text, one in zip(shapes, weight.tolist(), strict=True)))
    return 0.0


def elements(shapes: str) -> float:
    dims = orjson.loads(shapes)[0] if shapes else []
    return float(np.prod(dims)) if dims else 0.0


def gathering(graph: Graph) -> Mask:
    """The segments of an optimizer's step before its first op."""
    host, pieces = graph.facts.host, graph.segments
    steps = (host.rows["kind"] == ANNOTATION).to_numpy() & starting(host, OPTIMIZER_STEP)
    ops = np.flatnonzero((host.rows["kind"] == OP).to_numpy() & pick(steps, host.parent, False))
    first = np.full(len(host.start), AFTER_ALL)
    np.minimum.at(first, host.parent[ops], host.start[ops])
    mine: Mask = pick(steps, pieces.row, False) & (pieces.start < pick(first, pieces.row, NONE))
    return mine


def python(graph: Graph) -> Mask:
    """Segments in which no op or call runs."""
    annotation = (graph.facts.host.rows["kind"] == ANNOTATION).to_numpy()
    found: Mask = pick(annotation, graph.segments.row, True)
    return found


def _fused(graph: Graph, inside: Mask, kept: Mask, device: float) -> Changes:
    none = unchanged(graph)
    items = pick(inside, graph.facts.work.launch, False)
    gone = pick(inside, graph.segments.row, False) & ~kept
    return Changes(
        segments=np.where(gone, 0.0, 1.0),
        items=np.where(items, device, 1.0),
        fixed=np.where(pick(items, graph.edges.scales, False), 0.0, 1.0),
        floor=none.floor,
        cut=none.cut,
    )


# --- communication


def exposed_communication(model: Model) -> Fix | None:
    graph, work = model.graph, model.graph.facts.work
    talk = communicates(work.kind, work.name)
    if not talk.any():
        return None
    exposed = max(model.base_ns - step_of(model, change_communication(graph, 0.0)), 0.0)
    busy = float((graph.durations * launch_weight(graph.facts))[talk].sum())
    return Fix(
        key="fix:exposed-communication",
        ns=busy,
        gain_ns=Estimate(0.0, None, exposed, Basis.CEILING),
        ceiling_ns=exposed,
        advice="Start collectives earlier and in smaller buckets, so that they run beside the backward pass.",
        why=f"Collectives take {units.time(busy)} of device time a step, of which {units.time(exposed)} hold it up.",
    )
