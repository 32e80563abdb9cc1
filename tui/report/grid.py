"""What the step would take if some of the ranking's rows took less: a grid of replays, which the page reads off.

Each row alone, and each two together, at all of LEVELS. Between them the page interpolates; of more than two rows it
adds up what each gains, and what each two gain more or less than that together.
"""

import shlex
from collections.abc import Sequence
from itertools import combinations
from typing import Any, Final

from qrprof.planner.replay.changes import Changes, both, unchanged
from qrprof.planner.replay.model import step_of
from qrprof.planner.whatif_keys import find_part
from qrprof.planner.whatif_parts import Part, Subject
from qrprof.profiler.errors import QrprofError
from qrprof.tui.app.session import Session
from qrprof.tui.commands.rank import label
from qrprof.tui.ranking import Ranking, to_ms
from qrprof.tui.report.sections import HUES, Hues, ranked

LEVELS: Final = (1.0, 0.8, 0.5, 0.25, 0.0)  # of a row's time that remain
LEAST: Final = 0.005  # of the step, that a row gains at most or takes, to be asked for
MANY: Final = 200_000  # events, above which a replay takes long
FEWER: Final = 3  # rows then


def grid_record(session: Session, hues: Hues) -> dict[str, Any]:
    """Steps in ms. `alone[i]` and `pairs["i,j"]` are by the places in `levels` of what remains of rows i and j."""
    model = session.model
    if model.withheld:
        return {"withheld": model.withheld}
    subject = session.subject
    parts = find_parts(subject, session.ranking, FEWER if len(session.trace.events) > MANY else HUES)
    changes = [[part.change(level) for level in LEVELS] for _, part in parts]
    alone = [[step(subject, one) for one in own] for own in changes]
    pairs = {
        (i, j): [[step(subject, both(one, other)) for other in changes[j]] for one in changes[i]]
        for i, j in combinations(range(len(parts)), 2)
    }
    noise = session.ranking.noise
    return {
        "withheld": None if parts else "no row of the ranking takes enough of the step to ask what it would gain",
        "command": f"qrprof whatif {shlex.quote(session.run.id)}" + f" --rank {session.number}" * (session.number > 0),
        "levels": list(LEVELS),
        "base": to_ms(model.base_ns),
        "off": abs(model.error) + abs(model.next_step_error or 0.0) + (noise.fraction if noise else 0.0),
        "noise_known": noise is not None,
        "rows": [{"key": part.label, "label": name, "hue": hues.get(part.key, 0)} for name, part in parts],
        "alone": alone,
        "pairs": {f"{i},{j}": table for (i, j), table in pairs.items()},
        "several_off": several_off(subject, changes, alone, pairs),
    }


def find_parts(subject: Subject, ranking: Ranking, most: int) -> list[tuple[str, Part]]:
    """Rows of the ranking that are worth a question, with what a what-if's key of their name names."""
    step = subject.model.base_ns
    found: list[tuple[str, Part]] = []
    for target in ranked(ranking):
        gain = target.gain_ns.high if target.gain_ns else 0.0
        if target.kind != "fix" and max(gain, target.ns) >= LEAST * step and len(found) < most:
            try:
                found.append((label(target), find_part(subject, target.key)))
            except QrprofError:  # a cause that no what-if takes away
                continue
    return found


def step(subject: Subject, changes: Changes) -> float:
    """ms"""
    return step_of(subject.model, changes) / 1e6


def several_off(
    subject: Subject,
    changes: Sequence[Sequence[Changes]],
    alone: Sequence[Sequence[float]],
    pairs: dict[tuple[int, int], list[list[float]]],
) -> float | None:
    """How far the page is off the replay, as a share of the step, with all rows at the same level: the worst of them.

    None: there are not three rows.
    """
    if len(changes) < 3:
        return None
    base, off = step(subject, unchanged(subject.model.graph)), 0.0
    for level in range(1, len(LEVELS)):
        gains = [base - own[level] for own in alone]
        told = base - sum(gains)
        for (i, j), table in pairs.items():
            told += table[level][level] - base + gains[i] + gains[j]
        together = changes[0][level]
        for own in changes[1:]:
            together = both(together, own[level])
        off = max(off, abs(max(told, 0.0) - step(subject, together)) / base)
    return off
