"""An optimizer's events as a person reads them: one line each, or one JSON object a line for a program."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from qrprof.planner.optimize import beam
from qrprof.planner.optimize.records import Candidate, Event, Usage
from qrprof.profiler import units
from qrprof.tui.output import SCHEMA, finite, full, put

LONGEST = 160  # cells of what a candidate changed, and of why it failed


def json_line(event: Event) -> None:
    object_line({"kind": event.kind, "at": event.at, **event.record})


def object_line(record: Mapping[str, Any]) -> None:
    """Print a record on one line, with its schema number."""
    put(json.dumps({"schema": SCHEMA, **finite(record)}) + "\n")


@dataclass
class Progress:
    """Remembers what a line refers to. `left` says what is left of the budget."""

    say: Callable[[str], None]
    left: Callable[[], str]
    best: str = "none yet"
    changed: dict[object, str] = field(default_factory=dict)  # by number
    spent: dict[str, Usage] = field(default_factory=dict)  # by role

    def show(self, event: Event) -> None:
        """Most events are a line; a candidate has one when it is judged."""
        record: Mapping[str, Any] = event.record
        if event.kind == "proposed":
            self.changed[record["number"]] = full(str(record["changed"]), LONGEST)
        elif event.kind == "usage":
            self.spent[record["role"]] = Usage(**{one.name: record[one.name] for one in fields(Usage)})
        elif event.kind == "better":
            self.best = f"#{record['number']} {speed(record['over'])}"
            self.say(f"better: {self.best}")
        elif text := self.line(event.kind, record):
            self.say(text)
        if event.kind == "ended":
            for role, usage in self.spent.items():
                self.say(f"spent by the {role}: {spent_line(usage)}")

    def line(self, kind: str, record: Mapping[str, Any]) -> str:
        if kind == "judged":
            return self.judged(record)
        if kind == "switched":
            return f"switched from {record['from']} to {record['to']}: {record['why']}"
        if kind == "trouble":
            return f"{record['what']}: {full(str(record['text']), LONGEST)}"
        if kind in ("plan", "advice", "hint", "ended"):
            return f"{kind}: {record['text']}"
        return kind if kind in ("paused", "resumed") else ""

    def judged(self, record: Mapping[str, Any]) -> str:
        number = f"#{record['number']}"
        if self.best.split()[0] == number and record["over"] is not None:
            faster = record["over"]["mid"] > 1
            self.best = (
                f"{number} {speed(record['over'])}" if faster else f"none: {number} was no faster when timed again"
            )
        parts = [number, str(record["rung"]), str(record["outcome"])]
        if record["over"] is not None:
            parts.append(speed(record["over"]))
        told = self.changed.get(record["number"], "")
        why = f" ({full(str(record['why']), LONGEST)})" if record["why"] else ""
        return f"{' '.join(parts)}: {told}{why}; best {self.best}; left {self.left()}"


def going_on(before: Sequence[Candidate], say: Callable[[str], None], left: Callable[[], str]) -> Progress:
    """One that knows the candidates of earlier processes."""
    best = beam.best(before)
    told = f"#{best.number} {speed(asdict(best.over))}" if best and best.over else "none yet"
    return Progress(say, left, told, {one.number: one.proposal.changed for one in before})


def spent_line(usage: Usage) -> str:
    """ "61.0 s, 3 evaluations", "5 requests, 10,240 tokens, $0.02": what there is of it."""
    found = []
    if usage.evaluations:
        found += [units.time(1e9 * usage.seconds), units.counted(usage.evaluations, "evaluation")]
    if usage.gpu_seconds:
        found.append(f"{units.time(1e9 * usage.gpu_seconds)} of a GPU")
    if usage.requests:
        dollars = "dollars unknown" if usage.dollars is None else f"${usage.dollars:.2f}"
        tokens = f"{usage.tokens_in + usage.tokens_out:,} tokens"
        found.append(f"{units.counted(usage.requests, 'request')}, {tokens}, {dollars}")
    return ", ".join(found) or "nothing"


def speed(over: Mapping[str, float]) -> str:
    return f"{units.ratio(over['mid'])} ({units.ratio(over['low'])} to {units.ratio(over['high'])})"
