"""What ran when: a line a stream and a thread, and the gaps of each device with whom they are blamed on."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from qrprof.profiler import units
from qrprof.tui.app.actions import TIMELINE
from qrprof.tui.app.filters import parse
from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.session import Selection, Session
from qrprof.tui.app.timeline_model import Tally, around, mark
from qrprof.tui.app.views import Selected, Shown, View
from qrprof.tui.app.widgets.lanes import Lanes, Picked

if TYPE_CHECKING:
    from qrprof.tui.app.timeline_text import Told

IN: Final = 0.5  # what a key that zooms leaves of the length
ASIDE: Final = 0.25  # of what is shown, a key moves by
NARROWEST: Final = 60  # cells of a line of words


class TimelineView(View["Told"]):
    VIEW = TIMELINE
    DEFAULT_CSS = """
    TimelineView Lanes { height: 1fr; }
    TimelineView .told { height: 4; padding: 0 1; }
    .-wide TimelineView .told { height: 6; }
    """

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self.glyphs = glyphs
        self.told: Told | None = None
        self.wanted = ""  # the filter

    def content(self) -> ComposeResult:
        yield Lanes(self.glyphs)
        yield Static("", classes="told", markup=False)

    @property
    def lanes(self) -> Lanes:
        return self.query_one(Lanes)

    # --- a run

    def load(self, session: Session, other: Session | None) -> "Told":
        from qrprof.tui.app.timeline_text import tell

        return tell(session)

    def show(self, loaded: "Told") -> None:
        again, view = self.told is not None and self.told.timeline.whole == loaded.timeline.whole, self.lanes.view
        self.told = loaded
        self.lanes.show(loaded.timeline)
        if again:
            self.lanes.look(view)
        self.select(self.selection)

    def select(self, selection: Selection) -> None:
        """Mark the spans of its key; go to its gap."""
        self.selection = selection
        if self.told is None:
            return
        if selection.gap is not None:
            gap = next((place for place in self.told.by_size if self.start(place) == selection.gap), None)
            if gap and gap != self.lanes.picked:
                self.show_picked(gap)
        self.mark()

    def filter(self, text: str) -> None:
        self.wanted = text
        self.mark()

    def mark(self) -> None:
        """What the filter asks for, else what is selected."""
        if self.told is None:
            return
        timeline = self.told.timeline
        if self.wanted.strip():
            match = parse(self.wanted)
            self.lanes.marked = mark(timeline, np.array([match(record) for record in self.told.records], dtype=bool))
        else:
            wanted = np.array([bool(key) and key == self.selection.key for key in timeline.keys], dtype=bool)
            self.lanes.marked = mark(timeline, wanted, by_key=True) if wanted.any() else None
        self.tell()

    def hits(self) -> tuple[int, int] | None:
        if self.told is None or self.lanes.marked is None:
            return None
        return self.lanes.marked.count, sum(len(lane.start) for lane in self.told.timeline.lanes)

    # --- what is said

    @on(Lanes.Looked)
    def tell(self) -> None:
        told, lanes = self.told, self.lanes
        if told is None:
            return
        lines = self.picked_lines(told, lanes.picked) if lanes.picked else [told.causes, self.marks_line()]
        width = 2 * max(lanes.size.width, NARROWEST)
        self.query_one(".told", Static).update(Content("\n".join(self.glyphs.middle(line, width) for line in lines)))
        self.post_message(self.Changed())

    def marks_line(self) -> str:
        marked = self.lanes.marked
        if marked is None:
            return "nothing is marked: select a row in another view, or type / to search"
        return f"marked: {self.wanted.strip() or self.selection.key}, {marked.count} of them"

    def picked_lines(self, told: "Told", picked: Picked) -> list[str]:
        from qrprof.tui.app.timeline_text import gap_lines, span_lines

        gap = told.gap(picked)
        return span_lines(told, picked) if gap is None else gap_lines(told, picked, gap)

    def table(self) -> Shown:
        """A row a lane, of the time that is shown."""
        if self.told is None:
            return Shown([], [])
        edges = self.lanes.view.edges(1)
        rows = []
        for lane in self.told.timeline.lanes:
            found = lane.columns(edges, Tally())
            rows.append(
                [lane.label, units.time(int(found.busy[0])), units.share(float(found.share[0])), str(found.count[0])]
            )
        return Shown(["lane", "busy", "share", "spans"], [[self.glyphs.text(cell) for cell in row] for row in rows])

    def row(self) -> Sequence[str] | None:
        """What is picked, else the lane that the keys are for."""
        if self.told is None:
            return None
        if self.lanes.picked:
            return [self.glyphs.text(line) for line in self.picked_lines(self.told, self.lanes.picked)]
        return next(iter(self.table().rows[self.lanes.lane :]), None)

    def place(self) -> str | None:
        from qrprof.tui.app.timeline_text import place_of

        gap = self.told.gap(self.lanes.picked) if self.told and self.lanes.picked else None
        return place_of(self.told, gap) if self.told and gap else None

    # --- picking

    def start(self, place: Picked) -> int:
        assert self.told is not None
        return int(self.told.timeline.lanes[place.lane].start[place.span])

    def end(self, place: Picked) -> int:
        assert self.told is not None
        return int(self.told.timeline.lanes[place.lane].end[place.span])

    def show_picked(self, place: Picked) -> None:
        """Pick a span, and show it."""
        lanes, start, end = self.lanes, self.start(place), self.end(place)
        lanes.picked, lanes.lane = place, place.lane
        if start < lanes.view.start or end > lanes.view.end:
            lanes.look(lanes.view.centred(start, end))

    def pick(self, place: Picked) -> None:
        """A person has picked a span: the other views follow."""
        assert self.told is not None
        self.show_picked(place)
        lane, gap = self.told.timeline.lanes[place.lane], self.told.gap(place)
        key = self.told.timeline.keys[lane.key[place.span]] or self.selection.key
        self.selection = Selection(key, gap.start if gap else None)
        self.mark()
        self.post_message(Selected(self.selection))

    @on(Lanes.Clicked)
    def clicked(self, message: Lanes.Clicked) -> None:
        self.pick(message.picked)

    # --- actions

    def action_zoom_in(self) -> None:
        self.zoom(IN)

    def action_zoom_out(self) -> None:
        self.zoom(1 / IN)

    def zoom(self, by: float) -> None:
        """What is picked stays where it is, where it is in view; else the middle does."""
        view, picked, at = self.lanes.view, self.lanes.picked, 0.5
        if picked and view.start <= (middle := (self.start(picked) + self.end(picked)) // 2) < view.end:
            at = (middle - view.start) / view.ns
        self.lanes.look(view.zoomed(by, at))

    def action_earlier(self) -> None:
        self.lanes.look(self.lanes.view.moved(-ASIDE))

    def action_later(self) -> None:
        self.lanes.look(self.lanes.view.moved(ASIDE))

    def action_whole(self) -> None:
        if self.told:
            self.lanes.look(self.told.timeline.whole)

    def action_centre(self) -> None:
        """Where it is in the middle already: zoom to it."""
        if (picked := self.needs_picked()) and self.told:
            middle = self.lanes.view.centred(self.start(picked), self.end(picked)).within(self.told.timeline.whole)
            if middle == self.lanes.view:
                self.action_fit()
            else:
                self.lanes.look(middle)

    def action_fit(self) -> None:
        if picked := self.needs_picked():
            self.lanes.look(around(self.start(picked), self.end(picked)))

    def needs_picked(self) -> Picked | None:
        if self.lanes.picked is None:
            self.notify("pick a span first: click on it, or go through them with , and .", markup=False)
        return self.lanes.picked

    def action_lane_up(self) -> None:
        self.lanes.go(-1)

    def action_lane_down(self) -> None:
        self.lanes.go(1)

    def action_next_span(self) -> None:
        self.step_span(1)

    def action_previous_span(self) -> None:
        self.step_span(-1)

    def step_span(self, by: int) -> None:
        """Along the lane: from what is picked there, else from the middle of what is shown."""
        if self.told is None or not self.told.timeline.lanes:
            return
        number, picked, view = self.lanes.lane, self.lanes.picked, self.lanes.view
        lane = self.told.timeline.lanes[number]
        if picked and picked.lane == number:
            span = picked.span + by
        else:
            span = int(np.searchsorted(lane.start, view.start + view.ns // 2)) - (by < 0)
        if 0 <= span < len(lane.start):
            self.pick(Picked(number, span))

    def action_longer_gap(self) -> None:
        self.step_gap(-1)

    def action_shorter_gap(self) -> None:
        self.step_gap(1)

    def step_gap(self, by: int) -> None:
        """Along the gaps by their size; the first is the longest."""
        if self.told is None:
            return
        gaps, picked = self.told.by_size, self.lanes.picked
        if not gaps:
            self.notify(self.told.causes, markup=False)
            return
        place = gaps.index(picked) + by if picked in gaps else 0
        self.pick(gaps[min(max(place, 0), len(gaps) - 1)])

    def action_next(self) -> None:
        self.step_mark(1)

    def action_previous(self) -> None:
        self.step_mark(-1)

    def step_mark(self, by: int) -> None:
        """Along what is marked, by time."""
        marked, lanes = self.lanes.marked, self.lanes
        if marked is None or not marked.count:
            return
        after = self.start(lanes.picked) if lanes.picked else lanes.view.start - (by > 0)
        place = marked.step(after, by)
        self.pick(Picked(int(marked.lane[place]), int(marked.span[place])))
