"""What an optimization has come to, from its events: the same for one that runs, one that has ended, and a replay."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from qrprof.planner.optimize.records import Event
from qrprof.tui.output import clean
from qrprof.tui.progress import Progress, speed

KEPT: Final = 2000  # candidates that are remembered beside the best: a long run takes no more memory
LINES: Final = 300
LONGEST_PAUSE_S: Final = 60.0  # of a replay, between two events
TELLER: Final = Progress(say=lambda text: None, left=str)


@dataclass(frozen=True)
class Tried:
    """A candidate, as its last evaluation found it."""

    number: int
    sha256: str
    changed: str
    rung: str = ""  # "": not judged yet
    outcome: str = ""
    over: Mapping[str, float] | None = None  # low, mid, high over the starting file; None: not timed
    why: str = ""


@dataclass
class Course:
    """Takes events as they come."""

    seen: int = 0  # events
    budget: Mapping[str, Any] = field(default_factory=dict)
    tried: dict[int, Tried] = field(default_factory=dict)  # by number
    best: int | None = None
    paused: bool = False
    ended: Mapping[str, Any] | None = None  # record of the event
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES))  # a line each, as `qrprof optimize` prints

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            self.seen += 1
            try:
                self.note(event)
                text = told(event)
            except (KeyError, TypeError):
                text = f"{event.kind}: written by another version of qrprof"
            if text:
                self.lines.append(f"{event.at[11:19]} {text}")

    def note(self, event: Event) -> None:
        record: Mapping[str, Any] = event.record
        if event.kind in ("started", "resumed", "paused"):
            self.budget = record.get("budget") or self.budget
            self.paused, self.ended = event.kind == "paused", None
        elif event.kind == "proposed":
            number = record["number"]
            self.tried[number] = Tried(number, record["sha256"], clean(str(record["changed"])))
            self.drop_old()
        elif event.kind == "judged":
            self.judge(record)
        elif event.kind == "better":
            self.best = record["number"]
        elif event.kind == "ended":
            self.ended, self.paused = record, False
            self.best = self.best if record.get("best") is None else record["best"]

    def judge(self, record: Mapping[str, Any]) -> None:
        number = record["number"]
        before = self.tried.get(number, Tried(number, "", ""))
        self.tried[number] = replace(
            before,
            rung=record["rung"],
            outcome=record["outcome"],
            over=record["over"] or before.over,
            why=clean(str(record["why"])),
        )
        if number == self.best and not faster(self.tried[number]):
            self.best = None  # timed again, or looked at more closely

    def drop_old(self) -> None:
        while len(self.tried) > KEPT:
            del self.tried[next(number for number in self.tried if number != self.best)]


def faster(one: Tried) -> bool:
    """Than the starting file, and nothing wrong was found."""
    return one.outcome in ("PASS", "UNKNOWN", "INFRA") and one.over is not None and one.over["mid"] > 1


def told(event: Event) -> str:
    """An event as a line; "" where it says nothing by itself."""
    record: Mapping[str, Any] = event.record
    if event.kind == "started":
        return f"started: {record['target'] or record['task']}"
    if event.kind == "proposed":
        return f"#{record['number']} proposed: {clean(str(record['changed']))}"
    if event.kind == "better":
        return f"better: #{record['number']} {speed(record['over'])}"
    if event.kind == "judged":
        parts = [f"#{record['number']}", record["rung"], record["outcome"]]
        parts += [speed(record["over"])] if record["over"] else []
        return " ".join(map(str, parts)) + (f": {clean(str(record['why']))}" if record["why"] else "")
    return clean(TELLER.line(event.kind, record))


# --- played again


@dataclass
class Replay:
    """Events by the second in which they come; long pauses are shortened."""

    events: Sequence[tuple[float, Event]]
    speed: float
    at: float = 0.0  # seconds of the optimization that have passed
    taken: int = 0  # events
    held: bool = False

    @property
    def over(self) -> bool:
        return self.taken == len(self.events)

    @property
    def length(self) -> float:
        return self.events[-1][0] if self.events else 0.0

    def due(self, seconds: float) -> list[Event]:
        """What comes in the next seconds of the person's time."""
        if self.held:
            return []
        self.at = min(self.at + seconds * self.speed, self.length)
        first = self.taken
        while not self.over and self.events[self.taken][0] <= self.at:
            self.taken += 1
        return [event for _, event in self.events[first : self.taken]]


def replay_of(events: Sequence[Event], speed: float) -> Replay:
    at, before = 0.0, None
    placed = []
    for event in events:
        now = datetime.fromisoformat(event.at)
        at += min(max((now - before).total_seconds(), 0.0), LONGEST_PAUSE_S) if before else 0.0
        placed.append((at, event))
        before = now
    return Replay(placed, speed)
