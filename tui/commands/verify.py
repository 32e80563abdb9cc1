"""`qrprof verify`: do accepted swaps train the same, and does a step gain what was promised?"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click
from rich.console import RenderableType

from qrprof.kernels import swapfile, trust
from qrprof.kernels.swapfile import Entry
from qrprof.planner import predictions
from qrprof.planner.gate.records import Interval
from qrprof.planner.ledger import looked_up, opened
from qrprof.planner.predictions import Prediction
from qrprof.planner.swaps import store
from qrprof.planner.swaps.publish import swaps_file
from qrprof.planner.verify.processes import Program
from qrprof.planner.verify.records import Equivalence, Gain, Outcome, Verification
from qrprof.planner.verify.verify import Task, ops_of, verify
from qrprof.profiler import units
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.recording.launcher import launch_of
from qrprof.profiler.recording.relay import ended_by_signals
from qrprof.profiler.recording.script import check_script
from qrprof.profiler.store import FOLDER
from qrprof.tui.commands.bench import STDOUT
from qrprof.tui.output import field, full, save_json, say, title, write, write_json

CODES: Final[Mapping[Outcome, Exit]] = {
    "keep": Exit.OK,
    "no difference": Exit.OK,
    "harmful": Exit.FAILED,
    "cannot tell": Exit.UNKNOWN,
}
WIDTH: Final = 10  # of the labels
SHOWN: Final = 3  # rows of other work, names of kernels


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Example: qrprof verify --steps 20 train.py --lr 1e-3",
)
@click.option("-m", "--module", is_flag=True, help="SCRIPT is the name of a module, as in `python -m`.")
@click.option("--steps", type=click.IntRange(4), default=8, show_default=True, help="Steps timed, and compared.")
@click.option("--warmup", type=click.IntRange(1), default=3, show_default=True, help="Steps before any is timed.")
@click.option(
    "--rounds", type=click.IntRange(1), default=2, show_default=True, help="Rounds of four processes that are timed."
)
@click.option(
    "--prediction",
    "promised",
    type=click.IntRange(1),
    metavar="ID",
    help="What was promised, as in `qrprof predictions`; default: what the swap was accepted for.",
)
@click.option("--json", "target", metavar="FILE", type=click.Path(path_type=Path), help="Write JSON; - prints it.")
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(
    script: str,
    args: tuple[str, ...],
    module: bool,
    steps: int,
    warmup: int,
    rounds: int,
    promised: int | None,
    target: Path | None,
) -> int:
    """Check that accepted swaps train the same, and what a step gains.

    SCRIPT, or with -m the module SCRIPT, is run many times for a few steps each: it must train the same, and a step is
    timed in processes that take turns. All that follows SCRIPT is its own arguments. What it prints is not shown.

    \b
    0  keep: faster beyond noise; or no difference
    1  harmful: it does not train the same, leaks memory, or is slower
    4  cannot tell: evidence is missing
    """
    root = Path.cwd()
    entries = accepted(root)
    promise = promise_of(root, promised, entries)
    check_script(script, module)
    if os.environ.get("QRPROF_SWAPS") == "off":
        raise QrprofError("QRPROF_SWAPS=off leaves everything stock, there is nothing to verify; unset it", Exit.USAGE)
    if launch_of(os.environ).world_size > 1:
        raise QrprofError(
            "verify starts the program many times, without a launcher; what swaps change in a program of several ranks "
            "`qrprof run --shadow` says",
            Exit.USAGE,
        )
    with ended_by_signals(), TemporaryDirectory(prefix="qrprof-verify-") as folder:
        program = Program(script, args, module)
        task = Task(program, swaps_file(root), entries, warmup, steps, rounds, promise, Path(folder))
        found = verify(task, say)
    keep(root, found)
    if target == STDOUT:
        write_json(record(found, entries))
    else:
        write(page(found, entries))
        if target is not None:
            save_json(target, record(found, entries))
    return CODES[found.outcome]


def accepted(root: Path) -> tuple[Entry, ...]:
    """What the programs of the folder may load. Raises QrprofError (exit code 2) where that is nothing."""
    path = swaps_file(root)
    listed = swapfile.read(path) if path.exists() else ()
    trusted = trust.trusted(swapfile.project_of(path)) if listed else frozenset()
    entries = tuple(one for one in listed if one.digest in trusted)
    if not entries:
        raise QrprofError(f"you have accepted no swap in {FOLDER} on this machine; see `qrprof swaps list`", Exit.USAGE)
    return entries


def promise_of(root: Path, wanted: int | None, entries: Sequence[Entry]) -> Prediction | None:
    """The prediction asked for, else that of the only swap, or of an adapter beside swaps of its op: it holds theirs.

    Raises QrprofError (exit code 2) for an unknown one.
    """
    if wanted is not None:
        with opened(root) as connection:
            return predictions.find(connection, wanted)
    alone = entries[0] if len(entries) == 1 else above_all(entries)
    if alone is None:
        return None
    kept = [one.swap.prediction for one in looked_up(root, store.listed) if one.name == alone.name]
    known = next((number for number in kept if number is not None), None)
    return None if known is None else promise_of(root, known, entries)


def above_all(entries: Sequence[Entry]) -> Entry | None:
    """The adapter whose op all others serve: what it groups is no longer called one by one."""
    found = [one for one in entries if one.kind == "adapter"]
    served = [ops_of([other]) for other in entries]
    return found[0] if len(found) == 1 and all(set(ops_of(found)) <= set(ops) for ops in served) else None


def keep(root: Path, found: Verification) -> None:
    """What came of the prediction, in its log: the step that it began with, by the speed that was measured.

    A step as it was timed would be of another day than the prediction's. Where the log cannot be written, a line on
    stderr says so.
    """
    if found.expected is None or found.gain is None:
        return
    now = datetime.now(UTC)
    name, expected, gain = f"verify-{now:%Y%m%d-%H%M%S}", found.expected, found.gain
    try:
        with opened(root) as connection:
            step_ns = expected.base_ns / gain.speedup.mid
            predictions.measured(connection, expected.prediction, name, step_ns, gain.noise, now)
    except QrprofError as error:
        say(f"note: what was measured is not kept: {error}")


# --- the page


def page(found: Verification, entries: Sequence[Entry]) -> list[RenderableType]:
    blocks: list[RenderableType] = [title(headline(found))]
    blocks += [field("because", one.text, WIDTH) for one in found.findings]
    blocks += [field(label, text, WIDTH) for label, text in facts(found)]
    blocks += [field("note", text, WIDTH) for text in found.notes]
    blocks += [field("next", text, WIDTH) for text in advice(found, entries)]
    return blocks


def headline(found: Verification) -> str:
    if found.gain is None or found.outcome == "harmful":
        return found.outcome
    return f"{found.outcome}: a step is {between(found.gain.speedup)} as fast with the swaps"


def facts(found: Verification) -> Iterator[tuple[str, str]]:
    yield "swaps", served(found)
    if found.equivalence:
        yield "training", trained(found.equivalence)
    if gain := found.gain:
        yield "step", stepped(gain)
    if found.expected:
        word = {True: ": held", False: ": not held", None: ""}[found.held]
        yield "promised", f"{between(found.expected.speedup)} by prediction {found.expected.prediction}{word}"
    if memory := found.memory:
        yield "memory", f"{units.size(memory.stock_peak)} stock, {units.size(memory.swapped_peak)} with the swaps"
    if compared := found.compared:
        if compared.withheld:
            yield "other work", f"not compared: {compared.withheld}"
        elif compared.slower:
            worst = ", ".join(f"{one.key} by {units.time(one.ns)}" for one in compared.slower[:SHOWN])
            rows = "1 row takes" if len(compared.slower) == 1 else f"{len(compared.slower)} rows take"
            yield "other work", f"{rows} longer with the swaps: {worst}"
        else:
            yield "other work", "takes no longer with the swaps"
        if compared.kernels:
            yield "kernels", full(f"only with the swaps: {', '.join(compared.kernels[:SHOWN])}")
    yield "took", units.time(found.seconds * 1e9)


def served(found: Verification) -> str:
    counted = [
        f"{one.op} on {one.key}: {one.hits} calls" + (f", stock {sum(one.fallbacks.values())}" if one.fallbacks else "")
        for one in found.swaps.served
        if one.hits or one.fallbacks
    ]
    return "; ".join([*counted, *(f"adapter {name}" for name in found.swaps.adapters)]) or "none"


def stepped(gain: Gain) -> str:
    return (
        f"{units.time(gain.stock_ns)} stock, {units.time(gain.swapped_ns)} with the swaps:"
        f" {units.ratio(gain.speedup.mid)} ({between(gain.speedup)}, 95 %); noise {units.share(gain.noise)};"
        f" {4 * gain.rounds} processes, {gain.steps} steps each"
    )


def trained(same: Equivalence) -> str:
    steps = f"{same.forced} steps that begin alike, {same.free} after them, {same.parameters} parameters"
    if same.amplified is None:
        return f"not compared: {steps}"
    drift = f"rounding moves the loss by {100 * same.amplified.loss:.2g} %"
    return f"{'not the same' if same.findings else 'the same'} in {steps}; {drift}"


def advice(found: Verification, entries: Sequence[Entry]) -> Iterator[str]:
    if found.outcome in ("harmful", "no difference"):
        yield "take back what does not pay: " + ", ".join(f"`qrprof swaps undo {one.name}`" for one in entries)


def between(speedup: Interval) -> str:
    return f"{units.ratio(speedup.low)} to {units.ratio(speedup.high)}"


# --- the record


def record(found: Verification, entries: Sequence[Entry]) -> dict[str, Any]:
    """Speedups are those of a mean step, times in ms."""
    gain, expected = found.gain, found.expected
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": found.machine.device,
        "versions": dict(found.machine.versions),
        "outcome": found.outcome,
        "names": [one.name for one in entries],
        "predicted_x": asdict(expected.speedup) if expected else None,
        "measured_x": asdict(gain.speedup) if gain else None,
        "held": found.held,
        "stock_ms": gain.stock_ns / 1e6 if gain else None,
        "swapped_ms": gain.swapped_ns / 1e6 if gain else None,
        "noise": gain.noise if gain else None,
        "rounds": gain.rounds if gain else None,
        "steps": gain.steps if gain else None,
        "findings": [asdict(one) for one in found.findings],
        "swaps": asdict(found.swaps),
        "equivalence": asdict(found.equivalence) if found.equivalence else None,
        "memory": asdict(found.memory) if found.memory else None,
        "compared": asdict(found.compared) if found.compared else None,
        "notes": list(found.notes),
        "seconds": found.seconds,
    }
