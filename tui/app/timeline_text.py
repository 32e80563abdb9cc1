"""What the timeline view says in words: of a span, of a gap, and of all gaps."""

from dataclasses import dataclass

from qrprof.profiler import units
from qrprof.profiler.blame import GAP_CAUSES, GAP_LABELS
from qrprof.profiler.gaps import Gap, Idle, by_cause
from qrprof.profiler.partition import UNATTRIBUTED
from qrprof.tui.app.bottleneck_rows import is_place
from qrprof.tui.app.filters import Record
from qrprof.tui.app.session import Session
from qrprof.tui.app.timeline_lanes import find_timeline
from qrprof.tui.app.timeline_model import Timeline
from qrprof.tui.app.widgets.lanes import CAUSES, Picked
from qrprof.tui.commands.gaps import blamed
from qrprof.tui.ranking import short


@dataclass(frozen=True, eq=False)
class Told:
    """A run's timeline, and what is known of its gaps."""

    timeline: Timeline
    idle: Idle
    gaps: tuple[tuple[Gap, ...], ...]  # of each lane of gaps, as its spans
    by_size: tuple[Picked, ...]  # the longest first
    records: tuple[Record, ...]  # of each name of the timeline, for filters
    causes: str
    cwd: str

    def gap(self, picked: Picked) -> Gap | None:
        return self.gaps[picked.lane][picked.span] if picked.lane < len(self.gaps) else None


def tell(session: Session) -> Told:
    idle = session.idle
    timeline = find_timeline(session.facts, idle)
    gaps = tuple(tuple(gap for gap in idle.gaps or () if gap.device == device.device) for device in idle.devices)
    places = [Picked(lane, span) for lane, own in enumerate(gaps) for span in range(len(own))]
    by_size = sorted(places, key=lambda place: -gaps[place.lane][place.span].ns)
    own = len(timeline.names) - len(GAP_CAUSES)
    records: list[Record] = [{"name": name, "kind": "op"} for name in timeline.names[:own]]
    records += [{"name": f"gap:{cause}", "kind": "gap"} for cause in timeline.names[own:]]
    return Told(timeline, idle, gaps, tuple(by_size), tuple(records), causes_line(idle), session.run.cwd)


def causes_line(idle: Idle) -> str:
    """The letters of the gaps' lane with what they stand for, and each one's share of the step."""
    if idle.gaps is None:
        return f"gaps are withheld: {idle.withheld}"
    if not idle.gaps:
        return "there are no gaps"
    sums = by_cause(idle).groupby("cause", sort=False)["ns"].sum().sort_values(ascending=False)
    step = None if idle.withheld or len(idle.devices) > 1 else idle.step_ns or idle.recorded_ns
    parts = [cause_part(str(cause), ns / step if step else None) for cause, ns in sums.to_dict().items()]
    return f"gaps: {', '.join(parts)}"


def cause_part(cause: str, share: float | None) -> str:
    return f"{CAUSES[cause].upper()} {GAP_LABELS[cause]}" + ("" if share is None else f" {units.share(share)}")


def span_lines(told: Told, picked: Picked) -> list[str]:
    timeline = told.timeline
    lane = timeline.lanes[picked.lane]
    start, end = int(lane.start[picked.span]), int(lane.end[picked.span])
    key = timeline.keys[lane.key[picked.span]]
    name = timeline.names[lane.name[picked.span]]
    owner = f", of {short(key)}" if key not in ("", name, UNATTRIBUTED) else ""
    at = units.moment(start - timeline.whole.start, 1)
    return [short(name), f"{units.time(end - start)} at {at} on {lane.label}{owner}"]


def gap_lines(told: Told, picked: Picked, gap: Gap) -> list[str]:
    share = "" if gap.share is None else f", {units.share(gap.share)} of the step"
    thread = "" if gap.thread is None else f", thread {gap.thread}"
    number = told.by_size.index(picked) + 1
    at = units.moment(gap.start - told.timeline.whole.start, 1)
    return [
        f"{GAP_LABELS[gap.cause]}: {units.time(gap.ns)}{share}",
        f"blamed on {blamed(gap)}{thread}",
        f"gap {number} of {len(told.by_size)} by size, at {at} in step {gap.step}, before {gap.after or 'nothing'}",
    ]


def place_of(told: Told, gap: Gap) -> str | None:
    """file:line of whom a gap is blamed on."""
    if not is_place(gap.where):
        return None
    return gap.where if gap.where.startswith("/") else f"{told.cwd}/{gap.where}"
