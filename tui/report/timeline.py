"""The recorded steps as lanes of spans, thinned to what a screen can show.

Spans that are shorter than a quantum are one mark where they share a quantum of time: zoomed out they would share a
pixel anyway. The quantum is the smallest power of two, in ns, by which all lanes together have SPANS marks at most.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from qrprof.planner.replay.path import find_path
from qrprof.profiler.blame import GAP_LABELS
from qrprof.profiler.nesting import Ints
from qrprof.profiler.partition import UNATTRIBUTED
from qrprof.tui.app.session import Session
from qrprof.tui.app.timeline_lanes import find_timeline
from qrprof.tui.app.timeline_model import Timeline, Viewport
from qrprof.tui.commands.gaps import blamed
from qrprof.tui.output import clean, cut
from qrprof.tui.ranking import short
from qrprof.tui.report.sections import Hues

SPANS: Final = 60_000  # marks of a page
LANES: Final = 24  # of a page
LONGEST: Final = 200  # characters of a name
MARGIN: Final = 0.01  # of the steps, shown before and after them


@dataclass(frozen=True)
class Strip:
    """Spans of one lane in order of time; they do not overlap."""

    label: str
    start: Ints
    end: Ints
    name: Ints  # codes in the names of all strips
    hue: Ints

    def inside(self, view: Viewport) -> "Strip":
        kept = (self.end > view.start) & (self.start < view.end)
        start, end = np.maximum(self.start[kept], view.start), np.minimum(self.end[kept], view.end)
        return Strip(self.label, start, end, self.name[kept], self.hue[kept])


@dataclass(frozen=True)
class Marks:
    """What is drawn of a strip: its spans, some of them several together."""

    strip: Strip  # of the longest span of each
    start: Ints
    end: Ints
    count: Ints
    busy: Ints  # ns in spans


def timeline_record(session: Session, hues: Hues, redact: Callable[[str], str]) -> dict[str, Any]:
    """Names are redacted before they are cut. Times are ns: `start` from the trace's zero, the others from there.

    A lane's marks are `gap` (ns since the end of the one before), `ns`, `name` (place in `names`) and `hue`;
    `several` holds (place, spans, ns in them) of marks that are more than one span.
    """
    timeline = find_timeline(session.facts, session.idle)
    view = window(session, timeline)
    texts, strips = all_strips(session, timeline, hues)
    shown = [strip for strip in (strip.inside(view) for strip in strips) if len(strip.start)]
    quantum, marks = thinned(shown[:LANES], view.start)
    used, places = used_names(marks)
    return {
        "start": view.start,
        "ns": view.ns,
        "quantum": quantum,
        "spans": sum(len(strip.start) for strip in shown[:LANES]),
        "left_out": [strip.label for strip in shown[LANES:]],
        "steps": [{"number": number, "at": at - view.start} for number, at in timeline.steps if at < view.end],
        "names": [cut(clean(redact(texts(code))), LONGEST, blocks=True) for code in used],
        "lanes": [lane_record(one, places, view.start) for one in marks],
    }


def window(session: Session, timeline: Timeline) -> Viewport:
    """The recorded steps, on the host and the device."""
    steps = session.facts.steps
    start = min(int(steps.host.start.min()), int(steps.device.start.min()))
    end = max(int(steps.host.end.max()), int(steps.device.end.max()))
    margin = round((end - start) * MARGIN)
    return Viewport(max(start - margin, timeline.whole.start), min(end + margin, timeline.whole.end))


# --- strips


def all_strips(session: Session, timeline: Timeline, hues: Hues) -> tuple[Callable[[int], str], list[Strip]]:
    """What a code of a name stands for, and the strips: gaps, critical path, streams, threads.

    A span of a lane is coded by its name and by the op that it belongs to.
    """
    extra: list[str] = []
    names, keys = timeline.names, timeline.keys
    by_key = np.array([hues.get(key, 0) for key in keys], dtype=np.int64)
    found = []
    for label, columns in extra_rows(session):
        code, new = pd.factorize(columns["text"])
        code = code + len(names) * len(keys) + len(extra)
        extra += new.tolist()
        hue = columns["key"].map(lambda key: hues.get(key, 0)).to_numpy(dtype=np.int64)
        found.append(Strip(label, columns["start"].to_numpy(), columns["end"].to_numpy(), code, hue))
    for lane in timeline.lanes[timeline.gap_lanes :]:
        name, key = lane.name[lane.piece_span], lane.key[lane.piece_span]
        found.append(Strip(lane.label, lane.piece_start, lane.piece_end, name * len(keys) + key, by_key[key]))

    def text(code: int) -> str:
        name, key = divmod(code, len(keys))
        return extra[code - len(names) * len(keys)] if name >= len(names) else owned(names[name], keys[key])

    return text, found


def owned(name: str, owner: str) -> str:
    """A name with the op that it belongs to."""
    return short(name) if owner in ("", name, UNATTRIBUTED) else f"{short(owner)}: {short(name)}"


def extra_rows(session: Session) -> list[tuple[str, pd.DataFrame]]:
    """What no stream and no thread shows: columns start, end, text and key."""
    columns = ["device", "start", "end", "text", "key"]
    gaps = [
        (gap.device, gap.start, gap.end, f"{GAP_LABELS[gap.cause]}: {blamed(gap)}", f"gap:{gap.cause}")
        for gap in session.idle.gaps or []
    ]
    frame = pd.DataFrame(gaps, columns=columns)
    several = frame["device"].nunique() > 1
    found = [(f"gaps {device}" if several else "gaps", own) for device, own in frame.groupby("device")]
    if session.model.withheld is None:
        rows = find_path(session.model).rows
        rows = rows[rows["end"] > rows["start"]]
        texts = [f"{what}: {name}" if name else what for what, name in zip(rows["what"], rows["name"], strict=True)]
        found.append(("critical path", rows.assign(text=texts, key=rows["op"])))
    return found


# --- thinning


def thinned(strips: Sequence[Strip], zero: int) -> tuple[int, list[Marks]]:
    quantum, marks = 0, [merged(strip, 0, zero) for strip in strips]
    while sum(len(one.start) for one in marks) > SPANS:
        quantum = max(2 * quantum, 64)
        marks = [merged(strip, quantum, zero) for strip in strips]
    return quantum, marks


def merged(strip: Strip, quantum: int, zero: int) -> Marks:
    """Spans shorter than a quantum as one mark where they begin in the same one, and none that is longer between."""
    ns = strip.end - strip.start
    cell = (strip.start - zero) // max(quantum, 1)
    alone = ns >= quantum
    apart = alone[1:] | alone[:-1] | (cell[1:] != cell[:-1])
    first = np.flatnonzero(np.append(True, apart)[: len(ns)])
    last = np.append(first[1:], len(ns)) - 1
    group = np.cumsum(np.append(True, apart)[: len(ns)]) - 1
    longest = np.lexsort((-ns, group))[first]
    of = Strip(strip.label, strip.start[longest], strip.end[longest], strip.name[longest], strip.hue[longest])
    return Marks(of, strip.start[first], strip.end[last], last - first + 1, np.add.reduceat(ns, first))


def used_names(marks: Sequence[Marks]) -> tuple[list[int], dict[int, int]]:
    """The codes in use, and the place of each."""
    used = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(one.strip.name for one in marks)])).tolist()
    return used, {code: place for place, code in enumerate(used)}


def lane_record(marks: Marks, places: dict[int, int], zero: int) -> dict[str, Any]:
    before = np.append(zero, marks.end[:-1])
    several = np.flatnonzero(marks.count > 1)
    return {
        "label": marks.strip.label,
        "gap": (marks.start - before).tolist(),
        "ns": (marks.end - marks.start).tolist(),
        "name": [places[code] for code in marks.strip.name.tolist()],
        "hue": marks.strip.hue.tolist(),
        "several": np.stack([several, marks.count[several], marks.busy[several]], axis=1).tolist(),
    }
