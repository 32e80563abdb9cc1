"""What-ifs as they are typed: the step, and what each row would take."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from qrprof.profiler.errors import QrprofError
from qrprof.tui.app.session import Session


@dataclass(frozen=True)
class Answer:
    """What is known of `text`; a `problem` while it is no scenario."""

    text: str
    line: str = ""
    problem: str | None = None
    then_ns: Mapping[str, float] = field(default_factory=dict)  # by key of the partition; empty: not told


def answer(session: Session, text: str) -> Answer:
    """The step of a run if its parts took the times that `text` sets: KEY=SPEC, separated by spaces."""
    try:
        settings = shlex.split(text)
    except ValueError:
        return Answer(text, problem="a quotation mark is open")
    if not settings:
        return Answer(text, problem="type KEY=SPEC, such as linalg_qr=4x, launch=0 or gap:data=0")
    try:
        with session.lock:
            return ask(session, text, settings)
    except QrprofError as error:
        return Answer(text, problem=str(error))


def ask(session: Session, text: str, settings: list[str]) -> Answer:
    from qrprof.planner.whatif import find_changes, look_ups, parse_setting, rows_ns, what_if
    from qrprof.profiler import units

    subject, ranking = session.subject, session.ranking
    look_up = look_ups(subject, ranking.peaks)
    changes = find_changes(subject, [parse_setting(one) for one in settings], look_up)
    found = what_if(subject, changes)
    step = found.estimate(ranking.noise)
    line = f"{units.time(found.base_ns)} -> {units.time(found.step_ns)}, {units.ratio(found.speedup)}"
    if ranking.noise:
        line += f", between {units.time(step.low)} and {units.time(step.high)}"
    if found.amdahl_x is not None:
        line += f"; by shares alone {units.ratio(found.amdahl_x)}"
    sums = rows_ns(subject.partition, changes).groupby(subject.partition.rows["key"]).sum()
    return Answer(text, line, then_ns={str(key): float(ns) for key, ns in sums.items()})
