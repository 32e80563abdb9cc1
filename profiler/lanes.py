"""Where the rows of a trace are drawn: processes, threads, and lanes for what one thread cannot show at once.

A trace viewer's track shows rows that lie inside each other or apart, and drops one that begins inside another and
ends after it. Such rows go to a further lane.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd

from qrprof.profiler.events import HOST, SYNC
from qrprof.profiler.nesting import Ints

FIRST_PROCESS: Final = 2  # 1 is left to what a trace does not hold

Event = dict[str, Any]


@dataclass
class Places:
    """The process and thread of each row, and the events that name and order them.

    Each device is a process, its streams are threads. A host row's thread stays what it is, since readers take it
    from there; what overlaps on it is in further processes, which readers do not look at.
    """

    pid: Ints
    tid: Ints
    names: list[Event] = field(default_factory=list)


def find_places(events: pd.DataFrame, device_names: dict[int, str], first_thread: int) -> Places:
    """Places for the rows of `Trace.events`; `first_thread` of the host is drawn above the others."""
    found = Places(np.zeros(len(events), dtype=np.int64), events["track"].to_numpy().copy())
    devices = sorted(set(events["device"].tolist()) - {HOST})
    for pid, device in enumerate(devices, start=FIRST_PROCESS):
        found.names += process_names(pid, " ".join(["device", str(device), device_names.get(device, "")]).strip())
        for tid, (label, rows) in enumerate(stream_lanes(events, device), start=1):
            found.pid[rows], found.tid[rows] = pid, tid
            found.names += thread_names(pid, tid, label, tid)
    host = FIRST_PROCESS + len(devices)
    seen = set()
    for thread, lane, rows in track_lanes(events, HOST):
        found.pid[rows] = host + lane
        if host + lane not in seen:
            found.names += process_names(host + lane, f"host{numbered(lane)}")
            seen.add(host + lane)
        found.names += thread_names(host + lane, thread, f"thread {thread}", int(thread != first_thread))
    return found


def stream_lanes(events: pd.DataFrame, device: int) -> Iterator[tuple[str, Ints]]:
    """(label, rows) of each lane of a device; records of synchronisation are no work and have lanes of their own."""
    is_sync = events["kind"] == SYNC
    for kind, rows in (("", events[~is_sync]), (" sync", events[is_sync])):
        for stream, lane, own in track_lanes(rows, device):
            yield f"stream {stream}{kind}{numbered(lane)}", own


def track_lanes(events: pd.DataFrame, device: int) -> Iterator[tuple[int, int, Ints]]:
    """(track, lane, rows) of the tracks of a device or the host. `events` has the row numbers as its index."""
    rows = events[events["device"] == device]
    for _, own in rows.groupby("track", sort=True):
        lanes = np.array(nested_lanes(own["start"].tolist(), own["end"].tolist()))
        for lane in range(int(lanes.max()) + 1):
            yield int(own["track"].iloc[0]), lane, own.index.to_numpy()[lanes == lane]


def numbered(lane: int) -> str:
    return f" ({lane + 1})" if lane else ""


def process_names(pid: int, label: str) -> list[Event]:
    named = {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": label}}
    return [named, {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}]


def thread_names(pid: int, tid: int, label: str, order: int) -> list[Event]:
    named = {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": label}}
    return [named, {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": order}}]


def nested_lanes(starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The lane of each row, given by start and then the longest first: on one lane rows are nested or apart."""
    lanes: list[list[int]] = []  # the ends of the open rows, the innermost last
    found = []
    for start, end in zip(starts, ends, strict=True):
        lane = 0
        for stack in lanes:
            while stack and stack[-1] <= start:
                stack.pop()
            if not stack or end <= stack[-1]:
                break
            lane += 1
        else:
            lanes.append([])
        lanes[lane].append(end)
        found.append(lane)
    return found


def apart_lanes(starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The lane of each row, given by start: on one lane a row begins when the one before it has ended."""
    lanes: list[int] = []  # the end of the last row
    found = []
    for start, end in zip(starts, ends, strict=True):
        lane = next((lane for lane, last in enumerate(lanes) if last <= start), len(lanes))
        lanes[lane : lane + 1] = [end]
        found.append(lane)
    return found
