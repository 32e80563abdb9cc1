"""What the replay predicts for a change of the simulator's."""

from replay_cases import Change

from qrprof.planner.replay.changes import (
    WORDS,
    Changes,
    both,
    change_cause,
    change_items,
    change_rows,
    owned_rows,
    unchanged,
)
from qrprof.planner.replay.graph import Graph
from qrprof.planner.replay.model import Model, model_of, step_of
from qrprof.profiler.facts import find_facts
from qrprof.profiler.idle import DATA
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.trace import Trace


def model(trace: Trace, run: RunInfo | None = None) -> Model:
    return model_of(find_facts(trace, run), run)


def changes(graph: Graph, change: Change) -> Changes:
    found = unchanged(graph)
    for name, factor in change.ops.items():
        found = both(found, change_rows(graph, owned_rows(graph.facts, name), factor))
    for name, factor in change.kernels.items():
        found = both(found, change_items(graph, graph.facts.work.name == name, factor))
    for cause, factor in change.causes.items():
        one = change_cause(graph, DATA, factor) if cause == "data" else WORDS[cause](graph, factor)
        found = both(found, one)
    return found


def predict(found: Model, change: Change) -> float:
    return step_of(found, changes(found.graph, change))
