"""`qrprof optimize`: search for a faster kernel, have the gate judge what is found, and suggest what passed."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, get_args

import click

from qrprof.planner.optimize.budget import parse
from qrprof.planner.optimize.control import Control
from qrprof.planner.optimize.records import Budget, Event, Known, ProposerName
from qrprof.profiler.errors import Exit
from qrprof.tui.commands.task import FILE
from qrprof.tui.configuration import said
from qrprof.tui.output import clean, put, say, write
from qrprof.tui.progress import Progress, going_on, json_line, object_line
from qrprof.tui.remember import remember

if TYPE_CHECKING:  # torch is imported once the command runs
    from qrprof.planner.optimize.journal import Journal
    from qrprof.planner.optimize.stream import Endpoint
    from qrprof.tui.optimizing import Options, Run, Work
    from qrprof.tui.suggestion import Suggestion

SHOWN: Final = 8  # settings of a search that --dry-run shows


@click.command(epilog="Example: qrprof optimize --budget 10min")
@click.argument("run", required=False)
@click.option("--target", metavar="KEY", help="The op to make faster: a key of `qrprof rank`.")
@click.option("--task", metavar="ID", help="Optimize this task, without a run: see `qrprof task list`.")
@click.option("--start", type=FILE, metavar="FILE", help="The candidate file to start from.")
@click.option(
    "--proposer", type=click.Choice(get_args(ProposerName)), help="Who proposes candidates.  [default: search]"
)
@click.option("--model", metavar="NAME", help="With --proposer llm: the model that writes candidates.")
@click.option("--adviser", metavar="NAME", help="With --proposer llm: the model that is asked when it gets no better.")
@click.option("--beam", type=click.IntRange(1, 16), default=4, show_default=True, help="Parents kept.")
@click.option("--budget", metavar="LIMITS", help="Hard limits.  [default: 30min,40evals,$2]")
@click.option("--resume", metavar="ID", help="Go on with an optimization of `qrprof history`.")
@click.option("--hint", metavar="TEXT", help="What to try; for a model.")
@click.option("--dry-run", is_flag=True, help="Print what would be asked or tried first; nothing is sent or judged.")
@click.option("--json", "as_json", is_flag=True, help="Print each event as JSON, one a line.")
@click.option("--cluster", metavar="ADDRESS", help="Evaluate on a dask.distributed cluster, as tcp://host:8786.")
@click.option("--allow-unsandboxed", "unsandboxed", is_flag=True, help="Run a model's code where nothing contains it.")
@click.option("--yes", is_flag=True, help="Agree that prompts are sent to the model's host.")
@click.option("--rank", "number", type=click.IntRange(0), default=0, show_default=True, help="Process of the run.")
def command(
    run: str | None,
    target: str | None,
    task: str | None,
    start: Path | None,
    proposer: ProposerName | None,
    model: str | None,
    adviser: str | None,
    beam: int,
    budget: str | None,
    resume: str | None,
    hint: str | None,
    dry_run: bool,
    as_json: bool,
    cluster: str | None,
    unsandboxed: bool,
    yes: bool,
    number: int,
) -> int:
    """Search for a faster kernel for what is worth it most.

    RUN is a run's id, the start of one, or its folder; without it, the last run. The first target of its ranking that
    is worth it is optimized, and then the next, as long as there is budget. "search" varies what a file declares in
    TUNABLES, and asks nobody; "llm" asks the model behind OPENAI_BASE_URL, once you have agreed to what is sent.

    LIMITS are some of 2h, $5, 200evals, 30gpu-min, 100ktokens, separated by commas. Everything is kept: ctrl-C ends,
    --resume goes on, `qrprof history` shows.
    """
    from qrprof.tui.optimizing import Options, agreed_endpoint, resumed

    if task and (run or target):
        raise click.UsageError("give a RUN with --target, or --task: a task has its own op")
    if resume:  # as it was begun, whatever is configured since
        proposer, budget = proposer if said("proposer") else None, budget if said("budget") else None
    if resume and (run or target or task or start or proposer or hint):
        raise click.UsageError("--resume goes on as it was begun: `qrprof hint` adds a hint")
    if start and not (target or task):
        raise click.UsageError("--start is a file for one op: say which by --target or --task")
    limits = parse(budget) if budget else Budget()
    told = clean(hint).strip() if hint else None
    who = proposer or "search"
    wanted = Options(run, number, target, task, start, who, model, adviser, beam, limits, told, cluster, unsandboxed)
    if dry_run:
        if resume:
            raise click.UsageError("--dry-run shows what comes first: not with --resume")
        return show_first(wanted)
    going = resumed(resume, parse(budget) if budget else None) if resume else None
    if going is not None:
        wanted = replace(wanted, proposer=going.start.proposer, budget=going.start.budget, task=going.start.task.id)
    place = agreed_endpoint(wanted, yes=yes, confirm=partial(click.confirm, err=True) if sys.stdin.isatty() else None)
    with interrupts() as control:
        return whole(wanted, place, control, Shown(as_json), going)


@contextmanager
def interrupts() -> Iterator[Control]:
    """The first ctrl-C ends what runs, in order; a second one at once. SIGUSR1 pauses, SIGUSR2 goes on."""
    control = Control()

    def cancel(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before[signal.SIGINT])
        say("ending; all is kept")
        control.cancel()

    heard: dict[signal.Signals, Callable[[int, FrameType | None], None]] = {
        signal.SIGINT: cancel,
        signal.SIGUSR1: lambda number, frame: control.pause(),
        signal.SIGUSR2: lambda number, frame: control.go_on(),
    }
    before = {one: signal.signal(one, handler) for one, handler in heard.items()}
    try:
        yield control
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


# --- what is printed


class Shown:
    """Events as lines of talk, or as JSON lines on stdout; results on stdout."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def events(self, found: "Run") -> None:
        progress = going_on(found.before, say, found.meter.left)
        for event in found.events:
            self.event(event, progress)

    def event(self, event: Event, progress: Progress) -> None:
        if self.as_json:
            json_line(event)
        else:
            progress.show(event)

    def talk(self, text: str) -> None:
        if not self.as_json:
            say(text)

    def nothing(self, why: str, first: bool) -> None:
        """No target is worth it: an answer where there was none before."""
        if self.as_json:
            object_line({"kind": "ended", "end": "not-worth-it", "text": why})
        elif first:
            write([f"don't bother: {why}"])
        else:
            say(f"done: {why}")

    def suggestion(self, made: "Suggestion") -> None:
        from qrprof.tui import suggestion

        if self.as_json:
            object_line({"kind": "suggestion", **suggestion.record(made)})
        else:
            write(suggestion.page(made))


# --- the whole


def whole(
    options: "Options", place: "Endpoint | None", control: Control, shown: Shown, going: "Work | None" = None
) -> int:
    """Target after target, until none is left, the budget is spent, or a person ends it."""
    from qrprof.planner.optimize.journal import journal_of
    from qrprof.planner.optimize.target import Nothing
    from qrprof.tui.optimizing import GO_ON, find_work, ranking_of, run

    ranking = going.ranking if going else ranking_of(options)
    tried: dict[str, str] = {}
    now = going or find_work(options, ranking, options.budget, tried)
    while not isinstance(now, Nothing):
        journal = journal_of(Path.cwd())
        if now is not going:
            now = begun(journal, now, options.hint)
        shown.talk(f"{now.start.id}: {now.why}")
        found = run(now, options, journal, place, control, shown.talk)
        shown.events(found)
        ended = found.ended or {}
        if ended.get("verdict"):
            suggest(journal, now, str(ended["verdict"]), shown)
        if control.cancelled.is_set():
            return Exit.INTERRUPTED
        if ended.get("end") == "failed":
            return Exit.FAILED
        if options.target or options.task or ended.get("end") not in GO_ON:
            return Exit.OK
        tried[now.start.target] = str(ended.get("text"))
        before, now = now, find_work(options, ranking, found.meter.remaining(), tried)
        if not isinstance(now, Nothing):
            switched = {"from": before.start.target, "to": now.start.target, "why": f"{ended.get('text')}; {now.why}"}
            event = Event("switched", switched, journal.stamp())
            journal.add_events(before.start.id, [event])
            shown.event(event, Progress(say, found.meter.left))
    shown.nothing(now.why, first=not tried)
    return Exit.OK


def begun(journal: "Journal", now: "Work", hint: str | None) -> "Work":
    start = journal.begin(now.start)
    if hint:
        journal.add_hint(start.id, hint)
    return replace(now, start=start)


def suggest(journal: "Journal", now: "Work", verdict: str, shown: Shown) -> None:
    from qrprof.tui.suggestion import predicted, suggestion_of

    made = suggestion_of(journal, now.start.id, verdict, now.ranking, Path.cwd())
    shown.suggestion(made)
    if now.ranking is not None:
        remember(predicted(made, now.ranking, now.start.target))


# --- --dry-run


def show_first(options: "Options") -> int:
    """What would be asked or tried first. Nothing is sent or judged, and no optimization is begun."""
    from qrprof.planner.optimize.brief import known_at_first
    from qrprof.planner.optimize.target import Nothing
    from qrprof.tui.optimizing import find_work, ranking_of

    now = find_work(options, ranking_of(options), options.budget, {})
    if isinstance(now, Nothing):
        write([f"don't bother: {now.why}"])
        return Exit.OK
    known = replace(known_at_first(now.brief, Path.cwd(), options.hint), wanted=SHOWN)
    put("".join(f"{clean(line)}\n" for text in first_lines(options, now, known) for line in text.split("\n")))
    return Exit.OK


def first_lines(options: "Options", now: "Work", known: "Known") -> list[str]:
    from qrprof.planner.optimize.prompt import build
    from qrprof.tui.optimizing import proposer_of

    if options.proposer == "llm":
        return [f"--- {message['role']}\n{message['content']}" for message in build(known)]
    found = proposer_of(now.start, options, None, None).propose(known)
    return [found.done] if found.done else [one.changed for one in found.proposals]
