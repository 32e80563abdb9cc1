"""The profiler's cost on the host: the same ns for each piece of recorded time, of which pieces keep LOWEST."""

from typing import Final

import numpy as np

from qrprof.profiler.nesting import Floats

LOWEST: Final = 0.3  # of what remains of a piece


def cost_of(recorded: Floats, weight: Floats, surplus: float) -> float:
    """The cost, ns, by which pieces lose `surplus` in all."""
    most = (1 - LOWEST) * recorded / weight  # the cost from which on a piece loses no more
    order = np.argsort(most)
    most, losing = most[order], weight[order][::-1].cumsum()[::-1]
    lost = np.cumsum(np.diff(most, prepend=0.0) * losing)
    return float(np.interp(surplus, np.append(0.0, lost), np.append(0.0, most)))


def without_cost(recorded: Floats, cost: Floats | float) -> Floats:
    """What remains of times that hold a cost of the profiler's."""
    remains: Floats = np.maximum(recorded - cost, LOWEST * recorded)
    return remains
