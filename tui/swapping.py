"""What deciding on swaps takes beside the decision: finding them, what is known of each, the gate, and what is left."""

import shlex
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from qrprof.kernels.sources import OPS
from qrprof.kernels.trust import trusted
from qrprof.planner import patches, predictions
from qrprof.planner.gate import evidence
from qrprof.planner.gate.evidence import Kept
from qrprof.planner.gate.records import Task
from qrprof.planner.gate.task_store import keep, load_task
from qrprof.planner.ledger import looked_up, opened
from qrprof.planner.optimize.journal import journal_of
from qrprof.planner.predictions import forecast
from qrprof.planner.swaps import decide, patching, proposals, store
from qrprof.planner.swaps.decide import Deciding, Here
from qrprof.planner.swaps.records import KeptSwap, Proposal, State
from qrprof.planner.targets import Target
from qrprof.profiler import units
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.runinfo import RunInfo, read_run_info
from qrprof.profiler.store import RUN_FILE, find_run, run_folders
from qrprof.tui.commands.verdict import why
from qrprof.tui.output import clean, say
from qrprof.tui.ranking import Ranking, load_ranking, short
from qrprof.tui.remember import gains, remember
from qrprof.tui.suggestion import step_with
from qrprof.tui.swap_pages import Shown

MEASURE: Final = "measure it: qrprof verify SCRIPT"
FOUND: Final = "run {} has calls for it"
FOUND_LINES: Final = "run {} waits for these lines"
AGAIN: Final = (
    'then rank again: with `qrprof.kernels.install(".qrprof/swaps.json")` in the program, `qrprof trace` records it'
    " with the swap"
)


# --- which there are


def look(by: Deciding, run: str | None) -> list[KeptSwap]:
    """All swaps, after what a run (None: the last one, if any) has calls for was proposed."""
    if run is not None:
        propose_for(by, find_run(by.root, run))
    elif folders := list(run_folders(by.root)):
        try:
            propose_for(by, folders[-1])
        except QrprofError as error:
            say(f"note: nothing is proposed for the last run: {error}")
    freshen(by)
    return looked_up(by.root, store.listed)


def propose_for(by: Deciding, folder: Path) -> None:
    run = read_run_info(folder / RUN_FILE)
    with opened(by.root) as connection:
        for found in proposals.of_run(connection, run):
            store.propose(connection, found, None, by.change("proposed", FOUND.format(run.id)))


def propose_patches(by: Deciding, run: str | None) -> None:
    """Changes of the user's own files that the ranking of a run (None: the last one, if any) speaks for."""
    if run is None and next(run_folders(by.root), None) is None:
        return
    try:
        ranking = load_ranking(run)
    except QrprofError as error:
        say(f"note: no patch is proposed: {error}")
        return
    propose_lines(by, ranking.run, ranking.targets)


def propose_lines(by: Deciding, run: RunInfo, targets: Sequence[Target]) -> None:
    """Changes of the user's own files that these targets of a run speak for."""
    found = patches.find(by.root, run, targets)
    with opened(by.root) as connection:
        for patch in found:
            change = by.change("proposed", FOUND_LINES.format(run.id))
            store.propose(connection, patching.proposal(patch, run.id), patch.diff, change)


def freshen(by: Deciding) -> None:
    """One line on stderr for each swap that has become something else by itself."""
    for line in (*decide.refresh(by, decide.here()), *patching.settle(by)):
        say(line)


def wanted(by: Deciding, name: str) -> KeptSwap:
    """The swap of this name, or the only one whose name begins so, as it is now. Raises QrprofError (exit code 2)."""
    look(by, None)
    with opened(by.root) as connection:
        return renewed(by, connection, store.find(connection, name))


def renewed(by: Deciding, connection: sqlite3.Connection, kept: KeptSwap) -> KeptSwap:
    """What is a part of qrprof is proposed as it is now."""
    found = proposals.renewed(kept.swap)
    if found == kept.swap:
        return kept
    return store.propose(connection, found, None, by.change("proposed", "qrprof's own source has changed"))


def shown(by: Deciding, swaps: Sequence[KeptSwap]) -> list[Shown]:
    """With what is known of each."""
    if not swaps:
        return []
    mine = trusted(by.project)
    with opened(by.root) as connection:
        return [shown_one(by.root, kept, mine, connection) for kept in swaps]


def shown_one(root: Path, kept: KeptSwap, mine: frozenset[str], connection: sqlite3.Connection) -> Shown:
    swap, source, task = kept.swap, None, None
    try:
        source = store.source_of(connection, swap.sha256) if swap.kind in ("candidate", "patch") else None
        task = load_task(root, swap.task) if swap.task else None
    except QrprofError as error:
        say(f"note: {swap.name}: {error}")
    verdict = evidence.find(connection, swap.verdict) if known(connection, swap.verdict) else None
    return Shown(kept, verdict, task, source, kept.entry is not None and kept.entry.digest in mine)


def known(connection: sqlite3.Connection, verdict: str) -> bool:
    return connection.execute("SELECT 1 FROM verdicts WHERE id = ?", (verdict,)).fetchone() is not None


def accept(by: Deciding, one: Shown, objection: str, override: str) -> list[str]:
    """Accept it just as it was shown, although `objection`, if any, for the reason `override`; what to do next.

    Raises QrprofError as `decide.accept` does.
    """
    ranking = ranked(one.kept.swap)
    kept = promised(by, one, ranking) if ranking else one.kept
    why = f"although {objection}" if objection else "the gate passed it"
    decide.accept(by, kept, one.source, why, clean(override) if objection else "")
    return left(by, ranking) if ranking else [MEASURE]


def take_back(by: Deciding, kept: KeptSwap, state: State, why: str) -> None:
    """Out of the programs, or out of the file."""
    if kept.swap.patch is None:
        decide.leave(by, kept, state, why)
        if state == "rejected":
            hint(by, kept, why)
        return
    with opened(by.root) as connection:
        diff = store.source_of(connection, kept.swap.sha256)
    patching.take_back(by, kept, diff, state, why)


def hint(by: Deciding, kept: KeptSwap, why: str) -> None:
    """Why a candidate is not wanted, for the next proposals of its optimization."""
    with opened(by.root) as connection:
        verdict = kept.swap.verdict
        file = evidence.find(connection, verdict).file if known(connection, verdict) else ""
    optimization, _, number = file.partition("#")
    journal = journal_of(by.root)
    if number.isdigit() and optimization in [one.id for one in journal.optimizations()]:
        journal.add_hint(optimization, f"a person rejected #{number}: {why}")


# --- the gate


def judgeable(one: Shown, there: Here) -> bool:
    """Whether the gate could say more: it has not judged this, or not here."""
    if one.kept.swap.kind == "included":
        return True
    entry = one.kept.entry
    fresh = one.verdict is None or (entry is not None and decide.elsewhere(entry, there) != "")
    return one.kept.swap.kind == "candidate" and fresh


def judge(by: Deciding, one: Shown) -> KeptSwap:
    """Have the gate judge it, and keep what it finds; the included QR on the calls of its run.

    Raises QrprofError where it cannot be judged here.
    """
    from qrprof.planner.gate.here import layer_for
    from qrprof.tui.commands.gate import judged
    from qrprof.tui.commands.gate import remember as remember_verdict

    swap = one.kept.swap
    own = swap.kind == "included"
    task = task_of(by.root, swap)
    with TemporaryDirectory(prefix="qrprof-gate-") as folder:
        file = Path(folder, "candidate.py")
        file.write_bytes((proposals.WRAPPER if own else one.source or "").encode())
        verdict = judged(task, file, None, layer_for(swap.name, unsandboxed=own), file if own else None)
    kept = evidence.made(verdict, swap.name, None, by.now)
    remember_verdict(kept)
    return judged_swap(by, replace(swap, task=task.id), kept)


def task_of(root: Path, swap: Proposal) -> Task:
    from qrprof.tui.commands.task import of_run

    if swap.kind != "included":
        return load_task(root, swap.task)
    runs = [folder.name for folder in run_folders(root)]
    run = find_run(root, swap.run_id if swap.run_id in runs else None)
    return keep(root, of_run(run.name, proposals.JUDGED, 0))


def judged_swap(by: Deciding, swap: Proposal, kept: Kept) -> KeptSwap:
    """Keep a swap with the verdict on it: verified where that is a pass."""
    verdict = kept.verdict
    assert swap.entry is not None
    found = replace(swap, entry=proposals.judged(swap.entry, verdict))
    state: State = "verified" if verdict.outcome == "PASS" else "proposed"
    change = by.change(state, f"the gate: {verdict.outcome}: {why(verdict)}", verdict.id)
    with opened(by.root) as connection:
        known = store.propose(connection, found, None, change)
    # What was accepted stays in the ledger as it was, until it is accepted anew by this verdict.
    return replace(known, swap=found) if known.state == "accepted" else known


# --- what it promises, and what is left


def ranked(swap: Proposal) -> Ranking | None:
    """The ranking of the run that a swap was found in; None where there is none to be had."""
    try:
        return load_ranking(swap.run_id) if swap.run_id else None
    except QrprofError:
        return None


def promised(by: Deciding, one: Shown, ranking: Ranking) -> KeptSwap:
    """With a prediction of the step: by what the gate timed on calls of the run, else what the ranking says."""
    swap, base = one.kept.swap, ranking.partition.step_ns
    speedup = one.verdict and one.verdict.speedup
    key = f"aten::{swap.op.partition('.')[0]}" if swap.op else proposals.JUDGED
    step = step_with(ranking, key, one.task, speedup) if one.task and speedup else None
    if base is None or step is None:
        remember(gains(ranking, ranking.targets))
        with opened(by.root) as connection:
            return replace(one.kept, swap=proposals.with_prediction(connection, swap))
    made = forecast(ranking.run, "swaps", f"{short(key)}=swap {swap.name}", base, step)
    remember([made])
    with opened(by.root) as connection:
        number = predictions.latest_of(connection, made.run_id, made.source, made.scenario)
    return replace(one.kept, swap=replace(swap, prediction=number))


def left(by: Deciding, ranking: Ranking) -> list[str]:
    """What to do next, a sentence each: measure, and the next target of the run's ranking."""
    run = ranking.run
    lines = [MEASURE if run.imported else f"measure it: qrprof verify {clean(shlex.join(run.command))}"]
    running = [one.swap for one in looked_up(by.root, store.listed) if one.state == "accepted"]
    target = next_target(ranking, served_keys(running))
    if target is None:
        return [*lines, "nothing else of the ranking is worth it"]
    return [*lines, f"next: {short(target.key)}: {gain(target, ranking)}; {target.advice}", AGAIN]


def served_keys(swaps: Sequence[Proposal]) -> set[str]:
    """Keys of a ranking that swaps make faster."""
    ops = {op for one in swaps for op in (OPS.get(one.name, ()) if one.kind == "included" else (one.op,))}
    fixes = {f"fix:{one.name}" for one in swaps if one.kind == "adapter"}
    return fixes | {f"aten::{op.partition('.')[0]}" for op in ops if op}


def next_target(ranking: Ranking, served: set[str]) -> Target | None:
    left = [target for target in ranking.targets if target.key not in served and target.dont_bother is None]
    return next((target for target in left if target.gain_ns is not None), None)


def gain(target: Target, ranking: Ranking) -> str:
    assert target.gain_ns is not None
    step = ranking.partition.step_ns
    of = f" of a step of {units.time(step)}" if step else ""
    return f"up to {units.time(target.gain_ns.high)}{of} to gain"
