"""How much of a mean step a change is about, on the device and on the host."""

import numpy as np

from qrprof.planner.replay.changes import Changes
from qrprof.planner.replay.model import Model
from qrprof.profiler.facts import Facts, launch_weight
from qrprof.profiler.nesting import Floats
from qrprof.profiler.steps import weight_at


def covered(model: Model, gone: Changes) -> tuple[float, float]:
    """ns that a mean step has less, on the device and on the host, with what `gone` takes away."""
    facts, pieces = model.graph.facts, model.graph.segments
    items = model.graph.durations * (1 - gone.items) * item_weight(facts)
    host = model.host_ns * (1 - gone.segments) * weight_at(facts.steps.host, pieces.start)
    return float(items.sum()) * model.uniform, float(host.sum()) * model.uniform


def item_weight(facts: Facts) -> Floats:
    """By item of work the weight of its step: that of its launch, or else the one in which it ran."""
    work = facts.work
    return np.where(work.launch >= 0, launch_weight(facts), weight_at(facts.steps.device, work.start))
