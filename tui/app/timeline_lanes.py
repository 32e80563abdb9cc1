"""The lanes of a run: its gaps, the streams of its devices, and its threads."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from qrprof.profiler.blame import GAP_CAUSES
from qrprof.profiler.events import ANNOTATION
from qrprof.profiler.facts import Facts, feeding_threads
from qrprof.profiler.gaps import Gap, Idle
from qrprof.profiler.nesting import Mask, Nesting, nest, passing, pick, segments
from qrprof.profiler.owners import STEP_NAMES
from qrprof.profiler.partition import UNATTRIBUTED
from qrprof.profiler.work import by_stream
from qrprof.tui.app.timeline_model import Ints, Lane, Timeline, Viewport

NO_KEY: Final = 0


def find_timeline(facts: Facts, idle: Idle) -> Timeline:
    """The gaps of each device first, then its streams, the threads that feed them, and all others."""
    events = facts.trace.events
    names = events["name"].cat.categories.tolist()
    owner = facts.owners.row
    of_rows = pick(facts.owners.name, owner, "")
    of_work = pick(facts.owners.name, pick(owner, facts.work.launch, -1), UNATTRIBUTED)
    key, keys = pd.factorize(np.concatenate([[""], of_rows, of_work]))  # so that "" has the code NO_KEY
    host_key, work_key = np.split(key[1:], [len(of_rows)])
    gaps = list(gap_lanes(idle, len(names), len(keys)))
    lanes = [*gaps, *stream_lanes(facts, work_key), *thread_lanes(facts, host_key)]
    steps = zip(facts.steps.numbers.tolist(), facts.steps.host.start.tolist(), strict=True)
    return Timeline(
        lanes=tuple(lanes),
        gap_lanes=len(gaps),
        names=(*names, *GAP_CAUSES),
        keys=(*keys.tolist(), *(f"gap:{cause}" for cause in GAP_CAUSES)),
        whole=Viewport(int(events["start"].min()), int(events["end"].max())),
        steps=tuple(steps),
    )


def gap_lanes(idle: Idle, first_name: int, first_key: int) -> Iterator[Lane]:
    """One a device. `first_name` and `first_key` are the codes of the first cause."""
    found = idle.gaps or []
    devices = [device.device for device in idle.devices]
    for device in devices:
        own = [gap for gap in found if gap.device == device]
        cause = np.array([GAP_CAUSES.index(gap.cause) for gap in own], dtype=np.int64)
        start, end = moments(own)
        label = "gaps" if len(devices) == 1 else f"gaps {device}"
        yield Lane(label, start, end, first_name + cause, first_key + cause, start, end, np.arange(len(own)))


def moments(gaps: list[Gap]) -> tuple[Ints, Ints]:
    start, ns = (np.array([getattr(gap, column) for gap in gaps], dtype=np.int64) for column in ("start", "ns"))
    return start, start + ns


def stream_lanes(facts: Facts, key: Ints) -> Iterator[Lane]:
    """Work of one stream never overlaps."""
    work, several = facts.work, len(np.unique(facts.work.device)) > 1
    name = facts.trace.device_work()["name"].cat.codes.to_numpy(dtype=np.int64)
    for own in by_stream(work.device, work.stream) if len(name) else ():
        start, end = work.start[own], work.end[own]
        order = np.lexsort((end, start))
        own, start, end = own[order], start[order], end[order]
        long = np.flatnonzero(end > start)
        device = f"{work.device[own[0]]}:" if several else ""
        yield Lane(
            f"stream {device}{work.stream[own[0]]}", start, end, name[own], key[own], start[long], end[long], long
        )


def thread_lanes(facts: Facts, key: Ints) -> Iterator[Lane]:
    """Ops and calls of each thread, then its annotations, which would hide in one row what lies between the ops."""
    host, events = facts.host, facts.trace.events
    is_range = (host.rows["kind"] == ANNOTATION).to_numpy()
    ranges = nest(events[(events["kind"] == ANNOTATION).to_numpy() & ~passing(events["name"], names_step)])
    feeding = feeding_threads(facts)
    others = sorted(set(np.unique(host.track).tolist()) - set(feeding))
    for thread in (*feeding, *others):
        yield from host_lane(f"thread {thread}", host, thread, ~is_range, key)
        yield from host_lane(f"ranges {thread}", ranges, thread, np.ones(len(ranges.start), dtype=bool), key[:0])


def names_step(name: str) -> bool:
    return name.startswith(STEP_NAMES)


def host_lane(label: str, host: Nesting, thread: int, shown: Mask, key: Ints) -> Iterator[Lane]:
    """The rows of a thread that are shown, where there are any; where another one is innermost, none of them is."""
    own = np.flatnonzero((host.track == thread) & shown)
    if not len(own):
        return
    line, name = segments(host, thread), host.rows["name"].cat.codes.to_numpy()
    inside = np.flatnonzero(pick(shown, line.row, False))
    yield Lane(
        label=label,
        start=host.start[own],
        end=host.end[own],
        name=name[own].astype(np.int64),
        key=key[own] if len(key) else np.full(len(own), NO_KEY),
        piece_start=line.start[inside],
        piece_end=line.start[inside + 1],
        piece_span=np.searchsorted(own, line.row[inside]),
    )
