"""What the suggestions view lists, as `qrprof swaps`, and what it says of one: its evidence, its life, its source."""

import difflib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from qrprof.planner import predictions
from qrprof.planner.ledger import looked_up, opened
from qrprof.planner.optimize.journal import journal_of
from qrprof.planner.predictions import Listed
from qrprof.planner.swaps import decide, patching, store
from qrprof.planner.swaps.decide import Deciding
from qrprof.profiler import units
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.runinfo import read_run_info
from qrprof.profiler.store import RUN_FILE, find_run, run_folders
from qrprof.tui import swapping
from qrprof.tui.app.session import Session
from qrprof.tui.app.widgets.grid import Head, Line
from qrprof.tui.output import clean
from qrprof.tui.proposing import deciding
from qrprof.tui.swap_pages import RIGHTS, Shown, evidence, source_lines, state
from qrprof.tui.swapping import judgeable, propose_for, propose_lines, renewed, shown, take_back

UNDECIDED: Final = ("verified", "proposed", "stale")
ORDER: Final = (*UNDECIDED, "accepted", "undone", "retired", "rejected")
LEAST_CHANGE: Final = 0.02  # of a step: less is no change, or the noise where that is more
HEADS: Final = (
    Head("swap", "swap"),
    Head("kind", "kind", spare=2),
    Head("state", "state"),
    Head("speedup", "speedup"),
    Head("predicted", "predicted step", spare=1, sorts=False),
    Head("measured", "measured", spare=1, sorts=False),
    Head("since", "since", spare=3),
)


@dataclass(frozen=True)
class Suggestion:
    shown: Shown
    objection: str  # to accepting it, as a sentence's end; "": nothing speaks against it
    judgeable: bool  # the gate could say more
    predicted: Listed | None

    @property
    def name(self) -> str:
        return self.shown.kept.name

    @property
    def is_patch(self) -> bool:
        return self.shown.kept.swap.patch is not None


@dataclass(frozen=True)
class Suggestions:
    all: tuple[Suggestion, ...]
    notes: tuple[str, ...]  # what has become stale, a sentence each


def by_person(root: Path) -> Deciding:
    return replace(deciding(), root=root)


def suggestions(root: Path, session: Session) -> Suggestions:
    """All of the working folder, after what its open run has calls and lines for was proposed.

    Raises QrprofError where the ledger, or what is beside it, cannot be read or written.
    """
    by, there = by_person(root), decide.here()
    if session.folder.resolve() in [one.resolve() for one in run_folders(root)]:
        propose_for(by, session.folder)
        with suppress(QrprofError):  # a run that cannot be ranked
            propose_lines(by, session.run, session.ranking.targets)
    notes = [*decide.refresh(by, there), *patching.settle(by)]
    renew(by)
    logged = {one.prediction.id: one for one in looked_up(root, predictions.listed)}
    found = [
        Suggestion(
            one,
            decide.objection(one.kept, one.verdict, there),
            judgeable(one, there),
            logged.get(one.kept.swap.prediction or 0),
        )
        for one in shown(by, looked_up(root, store.listed))
    ]
    return Suggestions(tuple(sorted(found, key=place)), tuple(notes))


def renew(by: Deciding) -> None:
    for kept in looked_up(by.root, store.listed):
        if kept.state in UNDECIDED:
            with opened(by.root) as connection:
                renewed(by, connection, kept)


def place(one: Suggestion) -> tuple[int, str]:
    """What is to be decided comes first."""
    return ORDER.index(one.shown.kept.state), one.name


# --- rows


def line(one: Suggestion) -> Line:
    kept = one.shown.kept
    speedup = one.shown.verdict.speedup.mid if one.shown.verdict and one.shown.verdict.speedup else None
    since = kept.changes[-1].at[:16]
    cells = (
        one.name,
        kept.swap.kind,
        state(one.shown),
        units.ratio(speedup),
        predicted(one.predicted),
        measured(one.predicted),
        since,
    )
    values = (one.name.lower(), kept.swap.kind, kept.state, speedup, None, None, since)
    return Line(one.name, cells, values)


def predicted(found: Listed | None) -> str:
    if found is None:
        return units.MISSING
    made = found.prediction
    ends = [units.time(end) for end in dict.fromkeys((made.low_ns, made.high_ns))]
    return f"{units.time(made.base_ns)} -> {' to '.join(ends)}"


def measured(found: Listed | None) -> str:
    if found is None or found.measurement is None:
        return units.MISSING
    step, base = found.measurement.step_ns, found.prediction.base_ns
    least = max(LEAST_CHANGE, found.measurement.noise or 0.0)
    return f"{units.time(step)}{', no change' if abs(step - base) < least * base else ''}"


def measured_in_full(root: Path, found: Listed | None) -> str:
    """With the noise, and the spread and number of the steps where the run that they are of is still here."""
    if found is None or found.measurement is None:
        return units.MISSING
    made = found.measurement
    noise = "noise unknown" if made.noise is None else f"noise {units.share(made.noise)}"
    return f"{measured(found)}; {noise}, by {made.run_id}{steps_of(root, made.run_id)}"


def steps_of(root: Path, run_id: str) -> str:
    try:
        durations = read_run_info(find_run(root, run_id) / RUN_FILE).unprofiled_ns()
    except QrprofError:  # gone, or it was a verification
        return ""
    if not durations:
        return ""
    low, median, high = (units.time(float(ns)) for ns in np.percentile(durations, [5, 50, 95]))
    return f": n = {len(durations)} unprofiled steps, median {median}, p05 {low}, p95 {high}"


# --- one of them


def told(root: Path, one: Suggestion) -> list[str]:
    """Evidence and life, a line each."""
    kept = one.shown.kept
    pairs = [("swap", f"{one.name}: {state(one.shown)}"), *evidence(one.shown)]
    if one.objection:
        pairs.append(("against", one.objection))
    pairs += [
        ("predicted", f"a step of {predicted(one.predicted)}"),
        ("measured", measured_in_full(root, one.predicted)),
    ]
    for change in kept.changes:
        because = f", because: {change.override}" if change.override else ""
        pairs.append((change.state, f"{change.at[:16]} by {change.who}: {change.why}{because}"))
    return [f"{label:<9} {text}" for label, text in pairs]


def source(one: Suggestion) -> list[str]:
    """All of it, with what a terminal would hide spelled out."""
    text = one.shown.source
    return ["it is a part of qrprof, not a file of yours"] if text is None else source_lines(text).splitlines()


def page(root: Path, one: Suggestion) -> list[str]:
    return [*told(root, one), "", *source(one)]


def asked(root: Path, one: Suggestion, override: str) -> list[str]:
    """What a person sees before they agree."""
    patch = one.shown.kept.swap.patch
    against = [f"The evidence is not enough: {one.objection}.", f"Your reason: {override}."] if override else []
    return [f"The diff below changes your file {patch.path}." if patch else RIGHTS, *against, "", *page(root, one)]


def changes(root: Path, one: Suggestion, context: int) -> list[str]:
    """What was changed in the file that it was made from, as a unified diff; or why there is none to show.

    `context` is how many lines stand around each change; a patch is shown just as it is applied.
    """
    text, kept = one.shown.source, one.shown.evidence
    if one.is_patch:
        return source(one)
    optimization = kept.file.partition("#")[0] if kept else ""
    try:
        before = journal_of(root).start(optimization).source if optimization and text is not None else None
    except QrprofError:
        before = None
    if text is None or before is None:
        return [f"{one.name}: it is not known what it was made from"]
    return [
        f"{one.name}: what was changed in the starting file of {optimization}",
        "",
        *diff_lines(before, text, context),
    ]


def diff_lines(before: str, after: str, context: int) -> Iterator[str]:
    """Each with its + or -, and what a terminal would hide spelled out."""
    old, new = (source_lines(text).splitlines() for text in (before, after))
    return difflib.unified_diff(old, new, "starting file", "candidate", lineterm="", n=context)


# --- decisions


def accept(root: Path, one: Suggestion, override: str) -> Sequence[str]:
    """Accept it just as it was shown; what to do next, a sentence each. Raises QrprofError."""
    by, kept = by_person(root), one.shown.kept
    if kept.swap.patch:
        patching.accept(by, kept, one.shown.source or "")
        return [f"{one.name} is applied to {kept.swap.patch.path}; z takes it back"]
    if one.objection:
        kept = decide.placed(kept, decide.here())
    lines = swapping.accept(by, replace(one.shown, kept=kept), one.objection, override)
    return [f"{one.name} is accepted: `qrprof run` loads it; z takes it back", *lines]


def reject(root: Path, one: Suggestion, why: str) -> Sequence[str]:
    """Raises QrprofError."""
    take_back(by_person(root), one.shown.kept, "rejected", clean(why).strip() or "not wanted")
    return [f"{one.name} is rejected"]


def undo(root: Path, one: Suggestion, why: str) -> Sequence[str]:
    """Raises QrprofError."""
    take_back(by_person(root), one.shown.kept, "undone", clean(why).strip() or "taken back")
    after = "the file is as it was" if one.shown.kept.swap.patch else "the next program that starts runs stock"
    return [f"{one.name} is undone: {after}"]
