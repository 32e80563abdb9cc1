"""What the profiler cost the host, from calls whose time without it is known.

The recorder makes the same few calls before it starts the profiler and, between two of its annotations, within the
trace. By the rule of `cost` each stretch of them with one innermost row holds the same cost.
"""

import numpy as np

from qrprof.profiler.cost import cost_of
from qrprof.profiler.events import ANNOTATION, GAUGE
from qrprof.profiler.facts import Facts, feeding_threads
from qrprof.profiler.idle import cut
from qrprof.profiler.nesting import distinct, segments
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.steps import weight_at


def segment_cost(facts: Facts, run: RunInfo | None) -> float | None:
    """ns that each segment of a host thread holds of the profiler's; None where the run was not gauged."""
    host = facts.host
    blocks = np.flatnonzero(((host.rows["name"] == GAUGE) & (host.rows["kind"] == ANNOTATION)).to_numpy())
    if run is None or run.gauge_ns is None or not len(blocks):
        return None
    return float(np.median([_cost(facts, block, run.gauge_ns) for block in blocks.tolist()]))


def host_cost(facts: Facts, run: RunInfo | None) -> float:
    """ns of a mean step that the profiler cost the threads which feed the device; 0 where the run was not gauged."""
    cost = segment_cost(facts, run)
    if cost is None:
        return 0.0
    starts = [cut(facts.steps.host, segments(facts.host, thread).start)[0] for thread in feeding_threads(facts)]
    return cost * sum(float(weight_at(facts.steps.host, start).sum()) for start in starts)


def _cost(facts: Facts, block: int, plain_ns: float) -> float:
    host = facts.host
    start, end = host.start[block], host.end[block]
    inside = (host.track == host.track[block]) & (host.start >= start) & (host.end <= end) & (host.end > host.start)
    recorded = np.diff(distinct(host.start[inside], host.end[inside])).astype(np.float64)
    return cost_of(recorded, np.ones(len(recorded)), max(0.0, float(end - start) - plain_ns))
