"""The step with one row of a partition made faster, by replay: what rankings ask again and again."""

from dataclasses import dataclass

import numpy as np

from qrprof.planner.replay.changes import Changes, cause_of, change_cause, change_items, change_rows
from qrprof.planner.replay.covered import covered
from qrprof.planner.replay.graph import NONE
from qrprof.planner.replay.model import Model, step_of
from qrprof.profiler.linalg import LINALG_DRIVERS
from qrprof.profiler.nesting import Ints, Mask, pick
from qrprof.profiler.partition import UNATTRIBUTED


@dataclass(frozen=True)
class Levers:
    """A model with its host rows by the op that owns them."""

    model: Model
    places: dict[str, int]
    owner: Ints  # by host row, the place of its owner's name; NONE: it has no owner

    @property
    def on_device(self) -> bool:
        return self.model.explained is not None

    def gain(self, key: str, factor: float, host_ns: float | None = None) -> float | None:
        """ns that a mean step saves where `key` takes `factor` of its time; None where a replay cannot say.

        On a device an op's kernels are made faster, and its launches stay; all of a linalg driver is, since a faster
        QR launches other kernels: its host then takes `host_ns` of a mean step, or where nobody knows the same factor.
        On a CPU an op is what it does itself.
        """
        changes = self._changes(key, factor, host_ns)
        return None if changes is None else max(self.model.base_ns - step_of(self.model, changes), 0.0)

    def _changes(self, key: str, factor: float, host_ns: float | None) -> Changes | None:
        graph = self.model.graph
        if key.startswith("gap:"):
            cause = cause_of(key)
            return None if cause is None else change_cause(graph, cause, factor)
        launch = graph.facts.work.launch
        if key == UNATTRIBUTED:
            return change_items(graph, launch == NONE, factor)
        rows: Mask = self.owner == self.places.get(key, NONE - 1)
        if not self.on_device:  # there, what a data loader calls is data loading
            return change_rows(graph, rows & (graph.facts.owners.loader < 0), factor)
        if key in LINALG_DRIVERS:
            return change_rows(graph, rows, factor, on_host(self.model, rows, host_ns))
        return change_items(graph, pick(rows, launch, False), factor)


def on_host(model: Model, rows: Mask, host_ns: float | None) -> float | None:
    """The factor by which these rows come to take `host_ns` of a mean step on the host; never more than they do."""
    if host_ns is None:
        return None
    _, now = covered(model, change_rows(model.graph, rows, 0.0))
    return min(host_ns / now, 1.0) if now else None


def find_levers(model: Model) -> Levers:
    facts = model.graph.facts
    names = facts.host.rows["name"].cat
    places = {str(name): place for place, name in enumerate(names.categories.tolist())}
    return Levers(model, places, pick(names.codes.to_numpy().astype(np.int64), facts.owners.row, NONE))
