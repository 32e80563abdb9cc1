"""What launching costs: the calls that launch device work, how long the work waits, and what a CUDA graph would save.

A launch is any runtime call whose correlation owns device work, whatever its name; a graph launch owns many items and
is one launch. Its delay runs from its start to that of its first item. The queue was full where the stream was still
busy with earlier work when the call returned (of a copy that blocked its caller: when it began): the device is then
the limit. Else it was empty, and the host is. A stream that waits for an event of another one counts as empty,
since the file does not hold such waits.

Times are as recorded, with the profiler's own cost; only the saving is calibrated to the unprofiled step.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from qrprof.profiler.calibrate import DeviceTimes, calibrate_device
from qrprof.profiler.coverage import Coverage, cover
from qrprof.profiler.events import COPY, KERNEL
from qrprof.profiler.facts import Facts, find_facts, launch_weight
from qrprof.profiler.gaps import THRESHOLD_NS
from qrprof.profiler.idle import AWAY, LAUNCH
from qrprof.profiler.nesting import Ints, Mask, pick
from qrprof.profiler.owners import PHASES
from qrprof.profiler.replays import owns_several
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.steps import weight_at, window_at
from qrprof.profiler.trace import Trace
from qrprof.profiler.work import AFTER_ALL, BEFORE_ALL, Work, next_started

SHORT_NS: Final = 10_000  # a kernel below it takes about as long as it takes to launch it
NO_LAUNCHES: Final = "no launches of device work in the steps"


@dataclass(frozen=True)
class Saving:
    """What one CUDA graph of a step's launches would save of the mean step, ns, if they can be captured."""

    low_ns: float  # idle time in launch-bound ops and launching calls, but for a pause of 3 us before each kernel
    high_ns: float  # the upper bound: without those pauses, and with all other delays and host work between launches


@dataclass(frozen=True)
class Launches:
    """`calls` has a row for each launch in the steps, by start, with the columns step, weight (of the step in the mean
    step), start, thread, call, op, phase, where, what (the name of the work; of a graph its call and size), device,
    stream, api_ns, delay_ns (0 where the clocks disagree), queue_full, depth (launches on the stream that had not
    started when it began), items (of device work), work_ns, short and short_ns (kernels under 10 us: number and time).
    """

    coverage: Coverage
    calls: pd.DataFrame
    recorded_ns: float  # the mean recorded step
    step_ns: float | None  # the mean unprofiled step; None: never timed
    graph: Saving | None
    withheld: str | None  # why there is no saving


def launches(trace: Trace, run: RunInfo | None = None) -> Launches:
    """The launches of the recorded steps. `run` knows the steps' weights and unprofiled time.

    Raises QrprofError where the trace is empty.
    """
    return find_launches(find_facts(trace, run), run)


def find_launches(facts: Facts, run: RunInfo | None) -> Launches:
    coverage, calls = cover(facts), _calls(facts)
    swept = facts.swept
    busy, idle = float(swept.ns.sum()), swept.idle.mean_ns
    times = calibrate_device(facts, run)
    withheld = coverage.abstains or (NO_LAUNCHES if calls.empty else None)
    withheld = withheld or times.calibration.withheld
    return Launches(
        coverage=coverage,
        calls=calls,
        recorded_ns=busy + idle,
        step_ns=run.step_ns() if run else None,
        graph=None if withheld else _saving(facts, times),
        withheld=withheld,
    )


def per_step(calls: pd.DataFrame, by: str) -> pd.DataFrame:
    """Launches of the mean step by "op", "what" or "call", most API time first.

    Columns: `by`, launches, items, api_ns, work_ns, short, short_ns, full and empty (launches with a full and an empty
    queue), full_ns and empty_ns (sums of their delays) and depth (mean over launches).
    """
    weight = calls["weight"]
    sums = {name: calls[name] * weight for name in ("items", "api_ns", "work_ns", "short", "short_ns")}
    full = calls["queue_full"]
    columns = pd.DataFrame(
        {
            by: calls[by],
            "launches": weight,
            **sums,
            "full": weight.where(full, 0.0),
            "empty": weight.where(~full, 0.0),
            "full_ns": (calls["delay_ns"] * weight).where(full, 0.0),
            "empty_ns": (calls["delay_ns"] * weight).where(~full, 0.0),
            "depth": calls["depth"] * weight,
        }
    )
    found = columns.groupby(by, as_index=False).sum()
    found = found.assign(depth=found["depth"] / found["launches"])
    return found.sort_values(["api_ns", by], ascending=[False, True]).reset_index(drop=True)


def _calls(facts: Facts) -> pd.DataFrame:
    host, work, owners = facts.host, facts.work, facts.owners
    rows, first = _first_items(facts)
    start, end, owner, items = host.start[rows], host.end[rows], owners.row[rows], _items(work).reindex(rows)
    graph = [f"{name} of {size} items" for name, size in zip(owners.name[rows], items["items"], strict=True)]
    blocks = (work.kind[first] == COPY) & (work.end[first] <= end)
    return pd.DataFrame(
        {
            "step": facts.steps.numbers[window_at(facts.steps.host, start)],
            "weight": weight_at(facts.steps.host, start),
            "start": start,
            "thread": host.track[rows],
            "call": owners.name[rows],
            "op": pick(owners.name, owner, ""),
            "phase": PHASES[owners.phase[rows]],
            "where": pick(owners.where, owner, ""),
            "what": np.where(owns_several(work)[first], np.array(graph, dtype=object), work.name[first]),
            "device": work.device[first],
            "stream": work.stream[first],
            "api_ns": end - start,
            "delay_ns": np.maximum(work.began[first] - start, 0),
            "queue_full": work.before[first] > np.where(blocks, start, end),
            "depth": _depth(work, first),
            **{name: items[name].to_numpy() for name in items},
        }
    )


def _first_items(facts: Facts) -> tuple[Ints, Ints]:
    """The launches in the steps by start: the call's row, and the place of the item of its work that began first."""
    kept = np.flatnonzero(launch_weight(facts) > 0)
    rows, place = np.unique(facts.work.launch[kept], return_index=True)
    order = np.argsort(facts.host.start[rows], kind="stable")
    return rows[order], kept[place][order]


def _items(work: Work) -> pd.DataFrame:
    """By launching row: items, work_ns, short and short_ns."""
    ns = work.end - work.began
    short = (work.kind == KERNEL) & (ns < SHORT_NS)
    columns = {"items": 1, "work_ns": ns, "short": short.astype(np.int64), "short_ns": np.where(short, ns, 0)}
    return pd.DataFrame(columns).groupby(work.launch).sum()


def _depth(work: Work, first: Ints) -> Ints:
    """By launch how many launches of its stream had not started when it began. Work without a launch counts singly."""
    alone = np.where(work.launch >= 0, work.launch, -1 - np.arange(len(work.launch)))
    queued = pd.DataFrame({"launch": alone, "device": work.device, "stream": work.stream})
    opens = np.flatnonzero(~queued.duplicated())
    depth = np.zeros(len(first), dtype=np.int64)
    for device, stream in np.unique(np.stack([work.device[first], work.stream[first]]), axis=1).T.tolist():
        mine = (work.device[first] == device) & (work.stream[first] == stream)
        theirs = opens[(work.device[opens] == device) & (work.stream[opens] == stream)]
        began = np.maximum(work.began[theirs], work.launched[theirs])
        times = work.launched[first[mine]]
        launched = np.searchsorted(np.sort(work.launched[theirs]), times, side="left")
        depth[mine] = launched - np.searchsorted(np.sort(began), times, side="left")
    return np.maximum(depth, 0)


def _saving(facts: Facts, times: DeviceTimes) -> Saving:
    """Only idle time of the device counts, each ns once, and only before work that no graph launches yet."""
    host, work, idle, starved = facts.host, facts.work, facts.swept.idle, times.starved
    following = next_started(work, idle.end)
    window = window_at(idle, starved.start)
    ns = np.where(pick(owns_several(work), following, False)[window], 0.0, times.starved_ns)
    launch = pick(work.launch, following, -1)[window]
    begun, returned = (starved.start >= pick(moments, launch, AFTER_ALL) for moments in (host.start, host.end))
    launching = (starved.cause == LAUNCH) | (begun & ~returned)
    likely = np.bincount(window, weights=np.where(launching, ns, 0.0), minlength=len(following))
    between = (starved.cause == AWAY) & _between_launches(facts, starved.start)
    rest = ns[~launching & (returned | between)].sum()
    return Saving(float(np.maximum(likely - THRESHOLD_NS * idle.weight, 0.0).sum()), float(likely.sum() + rest))


def _between_launches(facts: Facts, times: Ints) -> Mask:
    """Whether a launch of the same step began before each time, and another one begins after it."""
    windows, work = facts.steps.host, facts.work
    starts = np.unique(facts.host.start[work.launch[launch_weight(facts) > 0]])
    place = np.searchsorted(starts, times, side="right")
    before, after = pick(starts, place - 1, BEFORE_ALL), np.append(starts, BEFORE_ALL)[place]
    step = window_at(windows, times)
    found: Mask = (step >= 0) & (window_at(windows, before) == step) & (window_at(windows, after) == step)
    return found
