"""Optimizations: what to begin with, by whom and where candidates are made and judged, and the events of each.

Nothing is printed here: a command shows what comes, and so can any other view.
"""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from qrprof.planner.gate.records import Task
from qrprof.planner.gate.task_store import keep, load_task
from qrprof.planner.optimize import consent, prices, target
from qrprof.planner.optimize.brief import Brief, brief, device_here, fitting
from qrprof.planner.optimize.budget import Meter
from qrprof.planner.optimize.chat import endpoint
from qrprof.planner.optimize.control import Control
from qrprof.planner.optimize.feedback import of_best
from qrprof.planner.optimize.journal import Journal
from qrprof.planner.optimize.llm import LLM
from qrprof.planner.optimize.llm import Adviser as ModelAdviser
from qrprof.planner.optimize.loop import optimize
from qrprof.planner.optimize.records import (
    Adviser,
    Budget,
    Candidate,
    Evaluator,
    Event,
    Known,
    Proposed,
    Proposer,
    ProposerName,
    Stakes,
    Start,
)
from qrprof.planner.optimize.search import Search
from qrprof.planner.optimize.starters import starter
from qrprof.planner.optimize.stream import Endpoint
from qrprof.planner.optimize.target import Chosen, Nothing, Step
from qrprof.planner.optimize.tunables import tunables
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.store import find_run, run_folders
from qrprof.tui.commands.hint import existing_journal
from qrprof.tui.commands.task import of_run
from qrprof.tui.ranking import Ranking, load_ranking

GO_ON: Final = frozenset({"noise", "exhausted"})  # ends after which the next target is taken
CPU_SLOTS: Final = 1  # two at once would disturb each other's times


@dataclass(frozen=True)
class Options:
    """What a person asked for."""

    run: str | None = None
    rank: int = 0
    target: str | None = None
    task: str | None = None
    start: Path | None = None
    proposer: ProposerName = "search"
    model: str | None = None
    adviser: str | None = None
    beam: int = 4
    budget: Budget = field(default_factory=Budget)
    hint: str | None = None
    cluster: str | None = None
    unsandboxed: bool = False


@dataclass(frozen=True)
class Work:
    """One target, ready to begin."""

    start: Start
    brief: Brief
    why: str  # this target
    ranking: Ranking | None  # None: of a task alone


# --- what to do


def ranking_of(options: Options) -> Ranking | None:
    return None if options.task else load_ranking(options.run, options.rank)


def find_work(options: Options, ranking: Ranking | None, budget: Budget, tried: Mapping[str, str]) -> Work | Nothing:
    """The next target. Raises QrprofError for one that is asked for and is not there, or cannot be judged."""
    root = Path.cwd()
    if ranking is None:
        found = brief(root, load_task(root, str(options.task)), options.start)
        return work(options, found, budget, f"{found.task.id} was asked for", target.alone(budget, options.proposer))
    folder, step = find_run(root, options.run), step_of(ranking)

    def task_of(key: str) -> Task:
        return of_run(folder.name, key, options.rank)

    if options.target:
        chosen: Chosen | Nothing = target.wanted(ranking.targets, options.target, task_of, step)
    else:
        chosen = target.choose(ranking.targets, lambda key: startable(task_of(key), options), step, tried)
    if isinstance(chosen, Nothing):
        return chosen
    found = brief(root, keep(root, chosen.task), options.start, options.rank)
    plan = target.plan(chosen, step, budget, options.proposer)
    return work(options, found, budget, chosen.why, plan, ranking, chosen.target.key, chosen.stakes)


def startable(task: Task, options: Options) -> Task:
    """The task, where there is something to begin with. Raises QrprofError."""
    if options.proposer == "search" and starter(task) is None:
        raise QrprofError("a search has nothing to vary: give a file by --target and --start, or take --proposer llm")
    return task


def step_of(ranking: Ranking) -> Step:
    """The mean step by which gains are judged: without a measured one, the recorded one."""
    found = ranking.partition
    return Step(found.step_ns or found.recorded_ns, ranking.noise.fraction if ranking.noise else None)


def work(
    options: Options,
    found: Brief,
    budget: Budget,
    why: str,
    plan: Mapping[str, object],
    ranking: Ranking | None = None,
    key: str = "",
    stakes: Stakes | None = None,
) -> Work:
    if options.proposer == "search":
        tunables(found.source)  # what is not sound is said before anything is kept
    start = Start(
        id=f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{found.task.op.strip('_')}",
        task=found.task,
        source=found.source,
        proposer=options.proposer,
        stock=found.stock,
        target=key,
        run_id=ranking.run.id if ranking else "",
        budget=budget,
        beam=options.beam,
        stakes=stakes,
        feedback=found.feedback,
        plan={**plan, "why": why},
    )
    return Work(start, found, why, ranking)


def resumed(name: str, budget: Budget | None) -> Work:
    """An earlier optimization as it stands; a new budget takes the place of its own, and counts what was spent."""
    start = existing_journal(Path.cwd()).start(name)
    there = any(folder.name == start.run_id for folder in run_folders(Path.cwd()))
    ranking = load_ranking(start.run_id) if there else None
    start = replace(start, budget=budget or start.budget)
    found = Brief(start.task, start.source, start.stock, device_here(start.task), start.feedback)
    return Work(start, found, f"{start.id} goes on", ranking)


# --- proposers and evaluators


def agreed_endpoint(options: Options, *, yes: bool, confirm: Callable[[str], bool] | None) -> Endpoint | None:
    """Where models are asked, once a person has agreed; None: no model is to be asked.

    Raises QrprofError where there is no model, no key, no consent, or no price that a budget could be held by.
    """
    if options.proposer == "search":
        return None
    if options.model is None:
        raise QrprofError("--proposer llm asks a model: name one by --model", Exit.USAGE)
    models = [model for model in (options.model, options.adviser) if model]
    prices.check(options.budget, models)
    place = endpoint(os.environ)
    consent.ask(place.url, models, datetime.now(UTC), yes=yes, confirm=confirm)
    return place


def proposer_of(
    start: Start,
    options: Options,
    place: Endpoint | None,
    meter: Meter | None,
    stop: threading.Event | None = None,
) -> Proposer:
    """A search draws alike whenever it goes on with the same optimization; `stop` ends a question to a model."""
    if place is None or meter is None:
        return Search(start.source, rng=random.Random(start.id), beam=start.beam, stock=start.stock)
    return Informed(LLM(place, str(options.model), meter, stop=stop))


def adviser_of(options: Options, place: Endpoint | None, meter: Meter, stop: threading.Event) -> Adviser | None:
    return ModelAdviser(place, options.adviser, meter, stop) if place and options.adviser else None


def evaluator_of(options: Options, task: Task, say: Callable[[str], None]) -> AbstractContextManager[Evaluator]:
    """Files of a search are the user's own or shipped, and run also where nothing can contain them."""
    unsandboxed = options.unsandboxed or options.proposer == "search"
    if options.cluster:
        from qrprof.planner.optimize.cluster import ClusterPool

        return ClusterPool(options.cluster, unsandboxed=unsandboxed)
    from qrprof.planner.optimize.pool import LocalPool

    return LocalPool(slots_of(task), unsandboxed=unsandboxed, say=say)


def slots_of(task: Task) -> int:
    import torch

    return CPU_SLOTS if task.device == "cpu" else max(1, torch.cuda.device_count())


# --- the run


@dataclass
class Informed:
    """A model that is also told where the best candidate gains least."""

    asked: Proposer
    name: ProposerName = "llm"

    @property
    def unheard(self) -> str:
        return self.asked.unheard

    def propose(self, known: Known) -> Proposed:
        return self.asked.propose(replace(known, feedback=(*known.feedback, *of_best(known))))


@dataclass
class Run:
    """One optimization under way, and then what it came to."""

    work: Work
    meter: Meter
    events: Iterator[Event]
    before: Sequence[Candidate]  # judged by earlier processes
    ended: Mapping[str, object] | None = None


def run(
    now: Work,
    options: Options,
    journal: Journal,
    place: Endpoint | None,
    control: Control,
    say: Callable[[str], None],
) -> Run:
    """Begin, or go on with, what `now` holds; nothing happens before its events are asked for."""
    start = now.start
    meter = Meter(start.budget, time.monotonic, journal.spent(start.id), partial(journal.keep_spent, start.id))
    found = Run(now, meter, iter(()), journal.candidates(start.id))

    def events() -> Iterator[Event]:
        with evaluator_of(options, start.task, say) as evaluator:
            for event in optimize(
                start,
                proposer_of(start, options, place, meter, control.cancelled),
                evaluator,
                journal,
                meter,
                control=control,
                adviser=adviser_of(options, place, meter, control.cancelled),
                lessons=fitting(journal, start.task, now.brief.device),
            ):
                if event.kind == "ended":
                    found.ended = event.record
                yield event

    found.events = events()
    return found
