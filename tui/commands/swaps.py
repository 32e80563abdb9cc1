"""`qrprof swaps`: which faster kernels there are for this folder's programs, and which of them may run."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from qrprof.planner.ledger import looked_up, opened
from qrprof.planner.swaps import decide, exchange, patching, store
from qrprof.planner.swaps.records import KeptSwap
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.store import FOLDER
from qrprof.tui import swapping
from qrprof.tui.commands.task import FILE
from qrprof.tui.commands.verdict import why
from qrprof.tui.output import clean, put, say, write, write_json
from qrprof.tui.proposing import deciding
from qrprof.tui.swap_pages import RIGHTS, Shown, all_of_them, page, record, source_lines
from qrprof.tui.swapping import (
    judge,
    judgeable,
    look,
    propose_patches,
    shown,
    take_back,
    wanted,
)

Ask = Callable[[Shown, Sequence[str]], None]  # with warnings; raises where nobody agrees
BECAUSE = click.option("--because", metavar="WHY", help="The reason, which is kept.")


@click.group(epilog="Example: qrprof swaps accept qr")
def command() -> None:
    """List, accept and undo faster kernels for your programs.

    What is accepted in a folder is loaded by `qrprof run` and by `qrprof.kernels.install(".qrprof/swaps.json")`, for
    the user who accepted it, on this machine.
    """


@command.command("list", epilog="Example: qrprof swaps list --json")
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(run: str | None, as_json: bool) -> int:
    """List the swaps of the working folder, with what a run has calls for.

    RUN is a run's id, the start of one, or its folder; without it, the last run.
    """
    by = deciding()
    propose_patches(by, run)
    found = shown(by, look(by, run))
    if as_json:
        write_json({"swaps": [record(one) for one in found]})
    elif found:
        write([all_of_them(found)])
    else:
        say(
            f"no swaps in {FOLDER}; `qrprof gate` and `qrprof optimize` make some,"
            " and a run has one if an included kernel serves calls of it"
        )
    return Exit.OK


@command.command(epilog="Example: qrprof swaps show qr")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(name: str, as_json: bool) -> int:
    """Show a swap with its evidence, its life, and its whole source."""
    by = deciding()
    one = shown(by, [wanted(by, name)])[0]
    if as_json:
        write_json(record(one))
    else:
        print_one(one)
    return Exit.OK


@command.command(epilog="Example: qrprof swaps accept qr")
@click.argument("name")
@click.option("--override", metavar="REASON", default="", help="Accept it against the evidence; the reason is kept.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print the accepted swap as JSON; with --yes.")
def accept(name: str, override: str, yes: bool, as_json: bool) -> int:
    """Let this folder's programs run a swap, once you have seen its source.

    It takes a PASS of the gate, on this machine and with this torch, and a gain outside the noise; what has no verdict
    is judged first. The swap runs inside your programs with all of their rights.
    """
    if as_json and not yes:
        raise click.UsageError("--json shows no source to agree to: give --yes too")
    by = deciding()
    one = shown(by, [wanted(by, name)])[0]
    ask = agree if as_json else partial(seen, yes=yes)
    if one.kept.state == "accepted" and (one.trusted or one.kept.swap.patch):
        say(f"{one.kept.name} is accepted already")
    elif one.kept.swap.patch:
        accept_patch(by, one, ask)
    else:
        accept_code(by, one, override, ask)
    if as_json:
        write_json(record(shown(by, [wanted(by, one.kept.name)])[0]))
    return Exit.OK


def accept_code(by: decide.Deciding, one: Shown, override: str, ask: Ask) -> None:
    one, objection = convinced(by, one, override)
    ask(one, (RIGHTS, f"the evidence is not enough: {objection}") if objection else (RIGHTS,))
    lines = swapping.accept(by, one, objection, override)
    name = one.kept.name
    for line in (f"{name} is accepted: `qrprof run` loads it; `qrprof swaps undo {name}` takes it back", *lines):
        say(line)


def accept_patch(by: decide.Deciding, one: Shown, ask: Ask) -> None:
    ask(one, ())
    patching.accept(by, one.kept, one.source or "")
    say(f"{one.kept.name} is applied; `qrprof swaps undo {one.kept.name}` takes it back")


def convinced(by: decide.Deciding, one: Shown, override: str) -> tuple[Shown, str]:
    """The swap with all the evidence there can be, and what still speaks against it: only where that is overridden.

    Raises QrprofError (exit code 3) where the evidence is not enough.
    """
    there = decide.here()
    objection = decide.objection(one.kept, one.verdict, there)
    if objection and not override and judgeable(one, there):
        say(f"{one.kept.name} is judged first: {objection}")
        one = shown(by, [judge(by, one)])[0]
        objection = decide.objection(one.kept, one.verdict, there)
    if objection and not override:
        if one.verdict and one.verdict.outcome != "PASS":
            say(f"the gate: {one.verdict.outcome}: {why(one.verdict)}")
        more = f"`qrprof swaps show {one.kept.name}` shows all of it, --override REASON accepts it all the same"
        raise QrprofError(f"{one.kept.name} is not accepted: {objection}; {more}", Exit.REFUSED)
    return (replace(one, kept=decide.placed(one.kept, there)) if objection else one), objection


def agree(one: Shown, warnings: Sequence[str]) -> None:
    """The answer given beforehand, and nothing shown but the warnings."""
    for line in warnings:
        say(line)


def seen(one: Shown, warnings: Sequence[str], yes: bool) -> None:
    """Show the swap, and ask. Raises QrprofError (exit code 3) where nobody agrees."""
    print_one(one)
    agree(one, warnings)
    if yes:
        return
    name = one.kept.name
    if not sys.stdin.isatty():
        raise QrprofError(f"nobody has agreed to {name}: give --yes, or ask on a terminal", Exit.REFUSED)
    if not click.confirm(f"qrprof: accept {name}?", err=True):
        raise QrprofError(f"{name} stays {one.kept.state}", Exit.REFUSED)


@command.command(epilog="Example: qrprof swaps reject qr")
@click.argument("name")
@BECAUSE
def reject(name: str, because: str | None) -> int:
    """Say that a swap is not wanted; an accepted one stops running."""
    by = deciding()
    kept = wanted(by, name)
    take_back(by, kept, "rejected", clean(because or "not wanted"))
    say(f"{kept.name} is rejected")
    return Exit.OK


@command.command(epilog="Example: qrprof swaps undo qr")
@click.argument("name")
@BECAUSE
def undo(name: str, because: str | None) -> int:
    """Take an accepted swap back: the next program that starts runs stock."""
    by = deciding()
    kept = wanted(by, name)
    if kept.state != "accepted":
        raise QrprofError(f"{kept.name} is {kept.state}, not accepted: there is nothing to undo", Exit.USAGE)
    take_back(by, kept, "undone", clean(because or "taken back"))
    after = "the file is as it was" if kept.swap.patch else "the next program that starts runs stock"
    say(f"{kept.name} is undone: {after}")
    return Exit.OK


@command.command(epilog="Example: qrprof swaps export swaps-for-a-colleague.json")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def export(file: Path) -> int:
    """Write the verified and accepted swaps to FILE, with sources, tasks and verdicts."""
    by = deciding()
    found = [
        one
        for one in looked_up(by.root, store.listed)
        if one.state in ("verified", "accepted") and one.swap.kind != "patch"
    ]
    if not found:
        raise QrprofError("no swap is verified or accepted; list all with `qrprof swaps list`", Exit.USAGE)
    with opened(by.root) as connection:
        exchange.write(file, exchange.exported(connection, by.root, found))
    say(f"{names(found)}: written to {file}")
    return Exit.OK


@command.command("import", epilog="Example: qrprof swaps import swaps-of-a-colleague.json")
@click.argument("file", type=FILE)
def import_(file: Path) -> int:
    """Propose the swaps of an exported file. Nothing of it runs before it was judged and accepted here."""
    by = deciding()
    incoming = exchange.read(file)
    with opened(by.root) as connection:
        found = [exchange.propose(connection, by, one, clean(file.name)) for one in incoming]
    say(f"{names(found)}: proposed; `qrprof swaps accept NAME` judges and accepts one")
    return Exit.OK


def names(swaps: Sequence[KeptSwap]) -> str:
    return ", ".join(one.name for one in swaps) or "none"


def print_one(one: Shown) -> None:
    write(page(one))
    if one.source is not None:
        put(f"\n{source_lines(one.source)}")
