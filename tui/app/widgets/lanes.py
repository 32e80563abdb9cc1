"""The timeline's drawing: a ruler, what is marked, the gaps, and a line a lane."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message
from textual.reactive import reactive

from qrprof.profiler import units
from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.timeline_model import Columns, Lane, Marked, Mask, Tally, Timeline, Viewport
from qrprof.tui.app.widgets.canvas import PLAIN, Canvas, fitted, levels, overlay, segments
from qrprof.tui.app.widgets.ruler import ruler
from qrprof.tui.output import BLUE, ORANGE

RULER, STEPS, MARKS, HEAD = range(4)  # the first lines, and how many they are
NAMED: Final = 6  # columns that a span fills, from which on its name is written there
WHEEL: Final = 0.8
CAUSES: Final = {  # a letter a cause of gaps, a capital where gaps have most of the column
    "data": "d", "sync": "s", "copy": "c", "alloc": "a", "launch": "l", "host": "h", "communication": "m",
    "profiler": "p", "unknown": "u",
}  # fmt: skip
DIM: Final = Style(dim=True)
BOLD: Final = Style(bold=True)
MARK: Final = Style(bold=True, color=ORANGE)
BUSY: Final = {"gaps": Style(color=ORANGE), "stream": Style(color=BLUE), "thread": Style(color="#009E73")}


@dataclass(frozen=True)
class Picked:
    """A span of a lane, by their places."""

    lane: int
    span: int


@dataclass(frozen=True)
class Drag:
    """The mouse is down: where it went down, where it is, and what was shown then."""

    x: int
    y: int
    now: int
    view: Viewport

    @property
    def moved(self) -> bool:
        return self.now != self.x


class Lanes(Canvas, can_focus=True):
    """Draws a timeline. The wheel zooms, a drag moves it, a drag on the ruler zooms to what is under it."""

    view: reactive[Viewport] = reactive(Viewport(0, 1))
    lane: reactive[int] = reactive(0)  # that the keys are for
    top: reactive[int] = reactive(0)  # the first lane shown under those that are fixed
    picked: reactive[Picked | None] = reactive[Picked | None](None)
    marked: reactive[Marked | None] = reactive[Marked | None](None)
    drag: reactive[Drag | None] = reactive[Drag | None](None)

    class Looked(Message):
        """Another stretch of time, or another lane, is looked at."""

    class Clicked(Message):
        """A person has clicked on a span."""

        def __init__(self, picked: Picked) -> None:
            super().__init__()
            self.picked = picked

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self.glyphs = glyphs
        self.timeline: Timeline | None = None
        self.tally = Tally()  # of all that was drawn

    def show(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.view, self.lane, self.picked, self.marked = timeline.whole, 0, None, None
        self.scroll()
        self.refresh()

    # --- where things are

    @property
    def label_width(self) -> int:
        return 16 if self.size.width < 100 else 20

    @property
    def columns(self) -> int:
        return max(self.size.width - self.label_width, 1)

    @property
    def pitch(self) -> int:
        """Lines from one lane to the next: apart, where there is room for all."""
        return 2 if self.timeline and HEAD + 2 * len(self.timeline.lanes) <= self.size.height else 1

    @property
    def fixed(self) -> int:
        """Lanes that do not scroll: those of the gaps, unless they are many."""
        gaps = self.timeline.gap_lanes if self.timeline else 0
        return gaps if 4 * gaps <= self.size.height else 0

    def scroll(self) -> None:
        """So that the lane that the keys are for is shown."""
        room = max((self.size.height - HEAD) // self.pitch - self.fixed, 1)
        self.top = max(min(self.top, max(self.lane, self.fixed)), self.lane - room + 1, self.fixed)

    def watch_lane(self) -> None:
        self.scroll()

    def on_resize(self) -> None:
        self.scroll()

    def lane_at(self, y: int) -> int | None:
        """The place of the lane that line `y` shows."""
        place, rest = divmod(y - HEAD, self.pitch)
        if self.timeline is None or place < 0 or rest:
            return None
        if place >= self.fixed:
            place += self.top - self.fixed
        return place if place < len(self.timeline.lanes) else None

    def look(self, view: Viewport) -> None:
        """Show a stretch of time, as far as there is any."""
        if self.timeline is not None:
            self.view = view.within(self.timeline.whole)
            self.post_message(self.Looked())

    # --- lines

    def line(self, y: int) -> list[Segment]:
        timeline = self.timeline
        if timeline is None:
            return []
        width = self.label_width
        if y == RULER:
            return [
                Segment(fitted(f"{units.time(self.view.ns)} shown", width), DIM),
                Segment("".join(self.ruled(timeline))),
            ]
        if y == STEPS:
            return [Segment(fitted("steps", width), DIM), Segment("".join(self.step_cells(timeline)), DIM)]
        if y == MARKS:
            return [Segment(fitted(self.marks_label(), width), DIM), *self.mark_line(timeline)]
        place = self.lane_at(y)
        if place is None:
            return []
        return [self.label(timeline, place), *self.lane_line(timeline, place)]

    def ruled(self, timeline: Timeline) -> list[str]:
        return ruler(self.view, timeline.whole.start, self.columns, self.glyphs.ascii)

    def step_cells(self, timeline: Timeline) -> list[str]:
        """Where steps begin; at the left edge also the one that goes on there."""
        cells, reached, tick = [" "] * self.columns, 0, "|" if self.glyphs.ascii else "╵"
        here = max((place for place, (_, start) in enumerate(timeline.steps) if start <= self.view.start), default=0)
        for number, start in timeline.steps[here:]:
            at = (start - self.view.start) * self.columns // self.view.ns
            label = f"{tick if at >= 0 else ' '}step {number}"
            if reached <= max(at, 0) and max(at, 0) + len(label) <= self.columns:
                overlay(cells, max(at, 0), label, len(label))
                reached = max(at, 0) + len(label) + 1
        return cells

    def marks_label(self) -> str:
        """How many of those marked are in view."""
        sign = "*" if self.glyphs.ascii else "◆"
        return f"{sign} {self.marked.inside(self.view)}/{self.marked.count}" if self.marked else "marks"

    def mark_line(self, timeline: Timeline) -> list[Segment]:
        """What is marked, in any lane, and over it what is picked, or under the mouse."""
        edges = self.view.edges(self.columns)
        cells, styles = [" "] * self.columns, [PLAIN] * self.columns
        marked = np.zeros(self.columns, dtype=bool)
        for touch in self.marked.lanes if self.marked else ():
            marked |= touch.counts(edges, self.tally) > 0
        mark, pick = "*^" if self.glyphs.ascii else "◆▲"
        for glyph, where in ((mark, marked), (pick, self.picks())):
            for column in np.flatnonzero(where).tolist():
                cells[column], styles[column] = glyph, MARK
        return segments(cells, styles)

    def picks(self) -> Mask:
        """The columns of what is picked, and of a drag on the ruler."""
        edges = self.view.edges(self.columns)
        found = np.zeros(self.columns, dtype=bool)
        if self.picked and self.timeline:
            lane = self.timeline.lanes[self.picked.lane]
            start, end = int(lane.start[self.picked.span]), int(lane.end[self.picked.span])
            found |= (edges[1:] > start) & (edges[:-1] < max(end, start + 1))
        if self.drag and self.drag.y == RULER and self.drag.moved:
            first, last = sorted((self.column(self.drag.x), self.column(self.drag.now)))
            found[first : last + 1] = True
        return found

    def label(self, timeline: Timeline, place: int) -> Segment:
        """The lane's name, a sign where the keys are for it, and one where it holds a mark in view."""
        cursor, sign = (">", "*") if self.glyphs.ascii else ("▸", "◆")
        marks = self.marked is not None and self.marked.lanes[place].counts(self.view.edges(1), self.tally)[0] > 0
        here = place == self.lane
        text = f"{cursor if here else ' '}{sign if marks else ' '}{timeline.lanes[place].label}"
        return Segment(fitted(text, self.label_width - 1) + " ", BOLD if here else PLAIN)

    def lane_line(self, timeline: Timeline, place: int) -> list[Segment]:
        lane, edges = timeline.lanes[place], self.view.edges(self.columns)
        shown = lane.columns(edges, self.tally)
        styles = [BUSY.get(lane.label.split()[0], DIM)] * self.columns
        for column in np.flatnonzero(self.in_marks(place)).tolist():
            styles[column] = MARK
        if place < timeline.gap_lanes:
            return segments(gap_cells(timeline, lane, shown), styles)
        cells = levels(shown.share, shown.count > 0, self.glyphs.ascii)
        write_names(cells, timeline, lane, shown)
        return segments(cells, styles)

    def in_marks(self, place: int) -> Mask:
        if self.marked is None:
            return np.zeros(self.columns, dtype=bool)
        return self.marked.lanes[place].counts(self.view.edges(self.columns), self.tally) > 0

    # --- the mouse

    def column(self, x: int) -> int:
        return min(max(x - self.label_width, 0), self.columns - 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.wheel(event, WHEEL)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.wheel(event, 1 / WHEEL)

    def wheel(self, event: events.MouseEvent, by: float) -> None:
        """Zoom where the mouse is; over the labels, go to another lane."""
        event.stop()
        if event.x < self.label_width:
            self.go(-1 if by < 1 else 1)
        else:
            self.look(self.view.zoomed(by, (self.column(event.x) + 0.5) / self.columns))

    def go(self, by: int) -> None:
        """To the lane so many below."""
        if self.timeline is not None:
            self.lane = max(min(self.lane + by, len(self.timeline.lanes) - 1), 0)
            self.post_message(self.Looked())

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if event.button == 1 and event.x >= self.label_width:
            self.drag = Drag(event.x, event.y, event.x, self.view)
            self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self.drag is None:
            return
        self.drag = replace(self.drag, now=event.x)
        if self.drag.y != RULER:
            self.look(self.drag.view.moved((self.drag.x - event.x) / self.columns))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self.release_mouse()
        drag, self.drag = self.drag, None
        if drag is not None and drag.moved and drag.y == RULER:
            first, last = sorted((self.column(drag.x), self.column(drag.now)))
            edges = self.view.edges(self.columns)
            self.look(Viewport(int(edges[first]), int(edges[last + 1])))
        elif drag is None or not drag.moved:
            self.click_at(event.x, event.y)

    def click_at(self, x: int, y: int) -> None:
        place = self.lane_at(y)
        if place is None or self.timeline is None:
            return
        self.lane = place
        column = self.column(x)
        span = self.timeline.lanes[place].at(self.view.edges(self.columns)[column : column + 2])
        if x >= self.label_width and span >= 0:
            self.post_message(self.Clicked(Picked(place, span)))
        else:
            self.post_message(self.Looked())


def gap_cells(timeline: Timeline, lane: Lane, shown: Columns) -> list[str]:
    """By column the letter of the longest gap's cause."""
    if not len(lane.name):
        return [" "] * len(shown.span)
    causes = [timeline.names[code] for code in lane.name[shown.span].tolist()]
    return [
        " " if not count else CAUSES[cause].upper() if share >= 0.5 else CAUSES[cause]
        for cause, count, share in zip(causes, shown.count.tolist(), shown.share.tolist(), strict=True)
    ]


def write_names(cells: list[str], timeline: Timeline, lane: Lane, shown: Columns) -> None:
    """Into spans that fill columns enough."""
    full = np.where(shown.share > 0.95, shown.span, -1)
    firsts = np.flatnonzero(np.append(True, np.diff(full) != 0))
    lasts = np.append(firsts[1:], len(full))
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        if full[first] >= 0 and last - first >= NAMED:
            overlay(cells, first + 1, timeline.names[lane.name[full[first]]], last - first - 2)
