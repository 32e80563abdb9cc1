"""Device work in the graph: an item starts after its launch, after its stream's work, after what its stream waits for.

What these rules take is typical, not fitted to each item: the median delay from the end of a launching call to the
start on an idle stream, and the median pause between items that were queued. An item that started later than the
rules say carries the rest as a residual; one that started earlier takes its own, shorter delay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from qrprof.planner.replay.graph import LAUNCH, NONE, ORIGIN, QUEUE, START, WAIT, Edges, edges, together
from qrprof.planner.replay.records import CLOCKS_NS
from qrprof.planner.replay.waits import blocking_copies, ended_last
from qrprof.profiler.facts import Facts
from qrprof.profiler.gaps import THRESHOLD_NS
from qrprof.profiler.nesting import Floats, Ints, Mask, Strings, pick
from qrprof.profiler.work import AFTER_ALL, Work, by_stream, latest_ended

FEW: Final = 3  # a median of fewer says nothing
DELAY_NS, PAUSE_NS = 2000.0, 1000.0  # where a trace has no samples: usual on A100 to H200
USUAL: Final = 0.9  # nine of ten queued items follow within their kind's usual pause
NEAR_NS: Final = 20_000  # an event that another stream waits for takes up to that
NEVER: Final = -np.inf


@dataclass(frozen=True)
class Rules:
    """By item of work, what it follows; NEVER and NONE where a rule does not hold for it."""

    called: Ints  # row of the launching call
    at_start: Mask  # the call lets go of the item as it starts (it blocks, or the device was quicker), not as it ends
    delay: Floats  # ns from there
    previous: Ints  # item on its stream
    pause: Floats  # ns after that one's end
    awaited: Ints  # item of another stream
    wait: Floats  # ns after that one's end
    residual: Floats  # ns that it started later than all of this
    explained: Mask  # that is 3 us at most


@dataclass(frozen=True)
class Times:
    """ns since the first item of work: nanoseconds since 1970 would not fit a float."""

    start: Ints
    end: Ints
    call_start: Ints  # by host row
    call_end: Ints


def times_of(facts: Facts) -> Times:
    host, work = facts.host, facts.work
    zero = work.start.min(initial=AFTER_ALL)
    return Times(work.start - zero, work.end - zero, host.start - zero, host.end - zero)


def find_rules(facts: Facts, told: tuple[Ints, Ints]) -> Rules:
    """`told` are pairs of items: the first waits for the second, on another stream, as the trace records it."""
    work, at = facts.work, times_of(facts)
    previous = previous_on_stream(work)
    free = _moments(at.end, previous)
    blocks = blocking_copies(facts)
    called = np.where(blocks, _moments(at.call_start, work.launch), _moments(at.call_end, work.launch))
    awaited = _told(work, told)
    ready = np.maximum(free, _moments(at.end, awaited))  # the device, for the item
    idle = (called >= ready) & (called > NEVER) & _first_of_launch(work)
    delay = _typical([blocks, work.kind, work.name], at.start - called, idle, DELAY_NS)
    # The host stages the data of a copy that blocks, which takes as long as it does; other work may hide how long.
    staged = blocks & (idle | (at.start - ready > THRESHOLD_NS))
    delay = np.where(staged, at.start - called, delay)
    inside = (work.launch >= 0) & (work.launch == pick(work.launch, previous, NONE))
    kinds = pick(work.kind, previous, "") + np.where(inside, " inside ", " ") + work.kind
    queued = (called > NEVER) & (free > called) & (free >= ready)
    between, within = (
        [_typical([kinds, work.name], at.start - free, sampled, PAUSE_NS, quantile) for quantile in (0.5, USUAL)]
        for sampled in (queued & ~inside, queued & inside)
    )
    pause, longest = np.minimum(np.where(inside, within, between), THRESHOLD_NS)
    late = at.start - np.maximum(called + delay, np.maximum(free + pause, ready))
    awaited = np.where(awaited >= 0, awaited, _likely(work, late > THRESHOLD_NS))
    done = _moments(at.end, awaited)
    last = (awaited >= 0) & (done >= np.maximum(called, free))
    wait = _typical([pick(work.kind, awaited, "") + work.kind], at.start - done, last, PAUSE_NS)
    return _settle(at, Rules(work.launch, blocks, delay, previous, pause, awaited, wait, longest, blocks))


def _settle(at: Times, typical: Rules) -> Rules:
    """Delays shortened where the item started earlier than the typical ones let it, and what is left where later.

    `residual` of `typical` is the longest usual pause.
    """
    ends = _moments(at.call_end, typical.called)
    at_start = typical.at_start | (at.start < ends)
    called = np.where(at_start, _moments(at.call_start, typical.called), ends)
    # An item that came before its call had returned follows it as it did.
    delay = np.where(at_start & ~typical.at_start, at.start - called, np.minimum(typical.delay, at.start - called))
    pause = np.minimum(typical.pause, at.start - _moments(at.end, typical.previous))
    wait = np.minimum(typical.wait, at.start - _moments(at.end, typical.awaited))
    rules = [called + delay, _moments(at.end, typical.previous) + pause, _moments(at.end, typical.awaited) + wait]
    latest = np.maximum.reduce(rules)
    residual = np.where(latest > NEVER, at.start - latest, 0.0)
    return Rules(
        called=typical.called,
        at_start=at_start,
        delay=delay,
        previous=typical.previous,
        pause=pause,
        awaited=typical.awaited,
        wait=wait,
        residual=residual,
        explained=(latest > NEVER) & (residual <= THRESHOLD_NS + typical.residual - typical.pause),
    )


def find_edges(facts: Facts, rules: Rules, told: tuple[Ints, Ints], item0: int, calls: Ints, zero: int) -> Edges:
    """Into the nodes of the items, which begin at `item0`; `calls` are the nodes of their launching calls.

    `zero` is the time of ORIGIN.
    """
    work = facts.work
    item = np.arange(len(work.start))
    parts = []
    for kind, source, spent in (
        (LAUNCH, np.where(rules.called >= 0, calls, NONE), rules.delay),
        (QUEUE, rules.previous, rules.pause),
        (WAIT, rules.awaited, rules.wait),
    ):
        held = np.flatnonzero(source >= 0)
        late = rules.residual[held]
        parts.append(
            edges(
                source[held] if kind == LAUNCH else item0 + source[held],
                item0 + held,
                kind,
                fixed=spent[held] + late,
                residual=late,
                item=np.full(len(held), NONE) if kind == LAUNCH else source[held],
                scales=held,
                row=np.where(kind == LAUNCH, rules.called[held], NONE),
            )
        )
    waiter, awaited = (column[told[1] != rules.awaited[told[0]]] for column in told)  # what ended earlier
    since = np.minimum(rules.wait[waiter], work.start[waiter] - work.end[awaited]) + rules.residual[waiter]
    parts.append(edges(item0 + awaited, item0 + waiter, WAIT, fixed=since, item=awaited, scales=waiter))
    free = item[(rules.called < 0) & (rules.previous < 0) & (rules.awaited < 0)]
    origin = np.full(len(free), ORIGIN)
    return together(*parts, edges(origin, item0 + free, START, fixed=(work.start[free] - zero).astype(np.float64)))


def previous_on_stream(work: Work) -> Ints:
    """By item the one of its stream that ended last before it began; NONE: it is the first."""
    found = np.full(len(work.start), NONE)
    for places in by_stream(work.device, work.stream):
        found[places[1:]] = places[latest_ended(work.end[places])[:-1]]
    return found


def _moments(times: Ints, rows: Ints) -> Floats:
    """`times[rows]` as floats; NEVER where the row is NONE."""
    return np.where(rows >= 0, pick(times, rows, 0).astype(np.float64), NEVER)


def _first_of_launch(work: Work) -> Mask:
    first = np.zeros(len(work.start), dtype=bool)
    first[np.unique(work.launch, return_index=True)[1]] = True
    return first


def _typical(groups: Sequence[Strings | Mask], values: Floats, sampled: Mask, usual: float, at: float = 0.5) -> Floats:
    """By item a quantile of the sampled values of its finest group that has enough; groups are from coarse to fine."""
    samples = pd.Series(np.where(sampled, values, np.nan))
    found = np.full(len(values), usual if sampled.sum() < FEW else float(samples.quantile(at)))
    key = np.zeros(len(values), dtype=np.int64)
    for column in groups:
        key = pd.factorize(pd.factorize(column)[0] + key * (len(values) + 1))[0]
        grouped = samples.groupby(key)
        enough = (grouped.count() >= FEW).to_numpy()
        found = np.where(enough[key], grouped.quantile(at).to_numpy()[key], found)
    return found


def _told(work: Work, told: tuple[Ints, Ints]) -> Ints:
    """Of all that an item waits for, as recorded, what ended last."""
    item, awaited = told
    latest = np.argsort(work.end[awaited], kind="stable")
    found = np.full(len(work.start), NONE)
    found[item[latest]] = awaited[latest]  # the last one stays
    return found


def _likely(work: Work, late: Mask) -> Ints:
    """For items that came late, the item of another stream at whose end they started: most likely they waited."""
    streams = _streams(work)
    if len(np.unique(streams)) < 2:
        return np.full(len(work.start), NONE)
    item = ended_last(work, work.start + CLOCKS_NS, work.launched)
    near = (item >= 0) & (pick(work.end, item, 0) >= work.start - NEAR_NS)
    return np.where(late & near & (pick(streams, item, NONE) != streams), item, NONE)


def _streams(work: Work) -> Ints:
    """A number for the stream of each item: streams of different devices may have the same one."""
    pairs = np.unique(np.stack([work.device, work.stream]), axis=1, return_inverse=True)[1]
    return pairs.ravel().astype(np.int64)
