"""What the profiler cost the host, from calls whose time without it is known.

The recorder makes the same few calls before it starts the profiler and, between two of its annotations, within the
trace. By the rule of `calibrate` each stretch of them with one innermost row holds the same cost.
"""

import numpy as np

from qrprof.profiler.calibrate import cost_of
from qrprof.profiler.events import ANNOTATION, GAUGE
from qrprof.profiler.facts import Facts
from qrprof.profiler.nesting import distinct
from qrprof.profiler.runinfo import RunInfo


def segment_cost(facts: Facts, run: RunInfo | None) -> float | None:
    """ns that each segment of a host thread holds of the profiler's; None where the run was not gauged."""
    host = facts.host
    blocks = np.flatnonzero(((host.rows["name"] == GAUGE) & (host.rows["kind"] == ANNOTATION)).to_numpy())
    if run is None or run.gauge_ns is None or not len(blocks):
        return None
    return float(np.median([_cost(facts, block, run.gauge_ns) for block in blocks.tolist()]))


def _cost(facts: Facts, block: int, plain_ns: float) -> float:
    host = facts.host
    start, end = host.start[block], host.end[block]
    inside = (host.track == host.track[block]) & (host.start >= start) & (host.end <= end) & (host.end > host.start)
    recorded = np.diff(distinct(host.start[inside], host.end[inside])).astype(np.float64)
    return cost_of(recorded, np.ones(len(recorded)), max(0.0, float(end - start) - plain_ns))
