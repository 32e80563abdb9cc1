"""What earlier attempts teach: scenario -> action -> effect, found again by op, sizes, device, and words.

Those that are shipped (`lessons.toml`) were measured by hand; the others are made of the ledger's candidates.
"""

import re
import sqlite3
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from qrprof.planner.gate.records import Interval, Task
from qrprof.planner.optimize.records import Candidate
from qrprof.profiler import units

MOST_CHARS: Final = 1200  # of all lessons in a prompt: about 300 tokens
SHORT: Final = 160  # characters of a failure
SHIPPED: Final = "lessons.toml"


@dataclass(frozen=True)
class Lesson:
    scenario: str
    action: str
    effect: str  # with its figures
    ops: tuple[str, ...] = ()  # as Task.op; none: any op
    n: tuple[int, int] | None = None  # columns of the inputs, first and last; None: any
    on: str = ""  # "cpu", or a part of a GPU's name; "": any GPU
    source: str = "shipped"  # or the id of the optimization that it was learned in

    @property
    def text(self) -> str:
        where = f" [{self.on}]" if self.on else ""
        return f"{self.scenario} -> {self.action} -> {self.effect}{where}"


def shipped() -> tuple[Lesson, ...]:
    text = Path(__file__).with_name(SHIPPED).read_text(encoding="utf-8")
    return TypeAdapter(tuple[Lesson, ...]).validate_python(tomllib.loads(text)["lesson"])


def recall(
    lessons: Iterable[Lesson], task: Task, device: str, words: str = "", most: int = MOST_CHARS
) -> tuple[str, ...]:
    """Lessons for a task on a device ("cpu", or a GPU's name), the most telling first, at most `most` characters.

    What was learned on such a device comes before what was learned elsewhere; then what has most of the rare ones
    among `words`.
    """
    fitting = [lesson for lesson in lessons if fits(lesson, task)]
    ranks = by_words([lesson.text for lesson in fitting], words)
    order = sorted(range(len(fitting)), key=lambda i: (not same_device(fitting[i], device), ranks[i]))
    found: list[str] = []
    for text in dict.fromkeys(fitting[i].text for i in order):
        if len(text) <= most:
            found.append(text)
            most -= len(text)
    return tuple(found)


def fits(lesson: Lesson, task: Task) -> bool:
    if (lesson.on == "cpu") != (task.device == "cpu") or (lesson.ops and task.op not in lesson.ops):
        return False
    columns = sizes(task)
    return lesson.n is None or any(lesson.n[0] <= n <= lesson.n[1] for n in columns)


def sizes(task: Task) -> set[int]:
    """Columns of the cases' first tensors."""
    shapes = [case.tensors[0].shape for case in task.development if case.tensors]
    return {shape[-1] for shape in shapes if shape}


def same_device(lesson: Lesson, device: str) -> bool:
    return lesson.on.lower() in device.lower()


def by_words(texts: Sequence[str], words: str) -> list[float]:
    """How well each text fits the words, the best lowest: BM25 by SQLite's full text search; 0 where none occurs."""
    ranks = [0.0] * len(texts)
    terms = sorted(set(re.findall(r"\w+", words.lower())))
    if not terms:
        return ranks
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE texts USING fts5(text, tokenize = 'porter')")
        connection.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", enumerate(texts))
        query = " OR ".join(f'"{term}"' for term in terms)
        for row, rank in connection.execute("SELECT rowid, rank FROM texts WHERE texts MATCH ?", (query,)):
            ranks[row] = rank
    finally:
        connection.close()
    return ranks


# --- learned


def learned(source: str, task: Task, device: str, candidates: Sequence[Candidate]) -> tuple[Lesson, ...]:
    """What the candidates of one optimization teach. Of a change tried twice the later attempt counts."""
    known = {one.sha256: one.over for one in candidates}
    columns = sizes(task)
    found: dict[str, Lesson] = {}
    for one in candidates:
        parent = known.get(one.proposal.parent or "")
        if one.lane and parent:
            continue  # the speed on a lane beside one on all cases says nothing
        if effect := effect_of(one, parent):
            lane = f", {one.lane}" if one.lane else ""
            found[one.proposal.changed] = Lesson(
                scenario=f"{task.op}{lane}",
                action=one.proposal.changed,
                effect=effect,
                ops=(task.op,),
                n=(min(columns), max(columns)) if columns else None,
                on="cpu" if task.device == "cpu" else device,
                source=source,
            )
    return tuple(found.values())


def effect_of(candidate: Candidate, parent: Interval | None) -> str:
    """What the change did; "": the machine failed, or it moved nothing that could be told from noise."""
    if candidate.outcome in ("FAIL", "SUSPECT"):
        return f"failed: {candidate.why[:SHORT]}" if candidate.why else ""
    if candidate.over is None or candidate.outcome == "INFRA":
        return ""
    gain = over(candidate.over, parent) if parent else candidate.over
    if gain.low <= 1.0 <= gain.high:
        return ""
    return f"{units.ratio(gain.mid)} its speed ({units.ratio(gain.low)} to {units.ratio(gain.high)})"


def over(child: Interval, parent: Interval) -> Interval:
    """The child's speed over its parent's, each known over a third: the widest interval that both allow."""
    return Interval(child.low / parent.high, child.mid / parent.mid, child.high / parent.low)
