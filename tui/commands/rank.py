"""`qrprof rank`: where the step goes, and what the step would gain."""

import math
from collections.abc import Sequence

import click
import numpy as np
from rich.console import RenderableType

from qrprof.planner.estimate import Basis
from qrprof.planner.targets import Target, expected_gain
from qrprof.profiler import units
from qrprof.profiler.coverage import describe
from qrprof.profiler.errors import Exit
from qrprof.profiler.events import CAUSE_LABELS
from qrprof.profiler.runinfo import LinalgCall
from qrprof.tui.output import BLUE, ORANGE, Cell, Column, bar, field, name, numbered, table, title, write, write_json
from qrprof.tui.ranking import (
    MS,
    Ranking,
    linalg_calls,
    load_ranking,
    noise_ns,
    notes,
    overhead_x,
    record,
    replay_line,
    run_line,
    short,
)
from qrprof.tui.remember import gains, remember

WORTHWHILE = 0.2  # of the first target's expected gain: less is not among what to do first
FIRST = 3  # things to do first
LARGE = 0.03  # share of a step
NOTHING = ["Nothing: no gain would show above the noise."]

TARGETS = (
    Column("#", right=True),
    Column("what", wraps=True),
    Column("ms/step", right=True),
    Column("share", right=True),
    Column(""),
    Column("calls", right=True),
    Column("ceiling", right=True),
    Column("gain, ms", right=True),
    Column("basis"),
)
LINALG = (
    Column("op"),
    Column("batch x m x n"),
    Column("dtype"),
    Column("calls", right=True),
    Column("ms/step", right=True),
    Column("site", wraps=True),
)


@click.command(epilog="Example: qrprof rank --top 5")
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print all rows with their parts as JSON.")
@click.option("--top", type=click.IntRange(1), default=12, show_default=True, help="Rows of a table.")
@click.option("--rank", "number", type=click.IntRange(0), default=0, show_default=True, help="Process of the run.")
def command(run: str | None, as_json: bool, top: int, number: int) -> int:
    """Rank what, if it were faster, would make the step faster.

    RUN is a run's id, the start of one, or its folder; without it, the last run. "ceiling" is the speedup of the step
    if the row took no time, "gain" what the step would save with a good kernel; "in noise" is a gain that could not
    be told from noise.
    """
    ranking = load_ranking(run, number)
    if as_json:
        write_json(record(ranking))
        shown = ranking.targets
    else:
        write(page(ranking, top))
        shown = [target for target in choose(ranking.targets, top)[0] if target.dont_bother is None]
    remember(gains(ranking, shown))
    return Exit.OK


def page(ranking: Ranking, top: int) -> list[RenderableType]:
    blocks = [*header(ranking), "", targets_table(ranking, top)]
    if first := do_first(ranking.targets):
        numbers = [numbered(place, text) for place, text in enumerate(first, start=1)]
        blocks += ["", title("Do first:"), *(first if first == NOTHING else numbers)]
    if ranking.run.linalg:
        blocks += ["", title("Linear algebra, calls of a mean step:"), linalg_table(ranking, ranking.run.linalg, top)]
    if remarks := footnotes(ranking):
        blocks += ["", *(field("note", remark) for remark in remarks)]
    return blocks


def footnotes(ranking: Ranking) -> list[str]:
    overlap = any(target.overlap for target in ranking.targets)
    return [*notes(ranking), *["* ran beside other streams: the step may gain less"] * overlap]


# --- the header


def header(ranking: Ranking) -> list[RenderableType]:
    return [field(label, text) for label, text in about(ranking)]


def about(ranking: Ranking) -> list[tuple[str, str]]:
    """What the ranking is of, and how far to trust it: labels and sentences."""
    run, found = ranking.run, ranking.partition
    lines = [
        ("run", run_line(run)),
        ("coverage", describe(found.coverage)),
        ("device", device_line(ranking)),
        ("step", step_line(ranking)),
        ("recorded", recorded_line(ranking)),
        ("replay", replay_line(ranking.model)),
        ("noise", noise_line(ranking)),
    ]
    if found.withheld:
        lines.append(("withheld", f"times are as recorded and no shares: {found.withheld}"))
    return lines


def device_line(ranking: Ranking) -> str:
    run = ranking.run
    kind = "cuda" if ranking.partition.on_device else "cpu"
    device = next((found.name for found in run.devices if found.kind == kind), kind)
    threads = f", {units.counted(run.threads, 'thread')}" if run.threads and not ranking.partition.on_device else ""
    versions = [f"{package} {run.versions[package]}" for package in ("torch", "cuda", "hip") if package in run.versions]
    return ", ".join([device + threads, *versions])


def step_line(ranking: Ranking) -> str:
    durations = ranking.run.unprofiled_ns()
    if not durations:
        return f"not measured without the profiler ({ranking.run.step_source})"
    low, median, high = (units.time(float(ns)) for ns in np.percentile(durations, [5, 50, 95]))
    clocks = " and ".join(sorted({block.clock for block in ranking.run.unprofiled}))
    return (
        f"{units.time(ranking.run.step_ns())}, the mean of n = {len(durations)} unprofiled steps "
        f"(median {median}, p05 {low}, p95 {high}; {clocks}; {ranking.run.step_source})"
    )


def recorded_line(ranking: Ranking) -> str:
    found, overhead = ranking.partition, overhead_x(ranking.partition)
    count = found.coverage.steps
    line = f"{units.counted(count, 'step')}, mean {units.time(found.recorded_ns)}"
    if overhead is not None:
        line += f", {overhead:.2f} times the unprofiled one"
    if found.on_device:
        line += f"; device busy {units.share(found.busy_ns / found.recorded_ns)}"
    return line if found.factor is None else f"{line}; calibrated with the factor {found.factor:.2f}"


def noise_line(ranking: Ranking) -> str:
    noise = ranking.noise
    if noise is None:
        return "not measured: too few unprofiled steps"
    return f"{units.share(noise.fraction)} of a step, {units.time(noise_ns(ranking))} ({noise.name})"


# --- the table of targets


def label(target: Target) -> str:
    """What a row is called: a cause of lost time by its words, an op by its name."""
    if target.kind == "fix":
        return f"{target.key.removeprefix('fix:').replace('-', ' ')} (fix)"
    return f"{CAUSE_LABELS[target.key.removeprefix('gap:')]} (gap)" if target.kind == "gap" else short(target.key)


def in_ms(ns: float | None) -> str:
    return units.MISSING if ns is None else units.digits(ns / MS)


def gain(target: Target) -> str:
    found, beside = target.gain_ns, "*" * target.overlap
    if found is None:
        return units.MISSING
    if target.dont_bother:
        return "in noise"
    if found.basis is Basis.CEILING:
        return f"up to {in_ms(found.high)}{beside}"
    return f"{in_ms(found.low)}..{in_ms(found.high)}{beside}"


def row(number: int, target: Target) -> list[Cell]:
    hue = BLUE if target.kind == "op" else ORANGE
    return [
        str(number),
        name(label(target)),
        in_ms(target.ns),
        units.share(target.share),
        name(bar(target.share), hue),
        units.calls(target.calls),
        units.ratio(target.ceiling_x),
        gain(target),
        target.gain_ns.basis.lower() if target.gain_ns else units.MISSING,
    ]


def sums(what: str, targets: Sequence[Target]) -> list[Cell]:
    shares = [target.share for target in targets if target.share is not None]
    share = sum(shares) if shares else None
    total = sum(target.ns for target in targets if target.kind != "fix")  # whose time lies in other rows
    return ["", what, in_ms(total), units.share(share), "", "", "", "", ""]


def choose(targets: Sequence[Target], top: int) -> tuple[list[Target], list[Target]]:
    """The table's rows and the others, both in the ranking's order. A large one is shown even if little is to gain."""
    large = [target for target in targets if is_large(target) or (target.kind == "fix" and not target.dont_bother)]
    small = [target for target in targets if target not in large]
    shown = [*large, *small][:top]
    return [t for t in targets if t in shown], [t for t in targets if t not in shown]


def is_large(target: Target) -> bool:
    return target.share is not None and target.share >= LARGE


def targets_table(ranking: Ranking, top: int) -> RenderableType:
    shown, rest = choose(ranking.targets, top)
    rows = [row(number, target) for number, target in enumerate(shown, start=1)]
    if rest:
        rows.append(sums(f"{len(rest)} others", rest))
    return table(TARGETS, rows, total=sums("total", ranking.targets))


def do_first(targets: Sequence[Target]) -> list[str]:
    """The advice of up to three targets that are worth it, or NOTHING; empty where nothing was estimated."""
    judged = [target for target in targets if target.gain_ns is not None]
    worth = [target for target in judged if target.dont_bother is None and expected_gain(target) > 0]
    if judged and not worth:
        return NOTHING
    enough = WORTHWHILE * expected_gain(worth[0]) if worth else math.inf
    first = [target for target in worth if expected_gain(target) >= enough][:FIRST]
    return [f"{label(target)}: {target.advice}" for target in first]


# --- linear algebra


def linalg_table(ranking: Ranking, calls: Sequence[LinalgCall], top: int) -> RenderableType:
    found = linalg_calls(ranking, calls)
    rows = [linalg_row(call, ns) for call, ns in found[:top]]
    if len(found) > top:
        rows.append([f"{len(found) - top} others", "", "", "", "", ""])
    return table(LINALG, rows)


def linalg_row(call: LinalgCall, ns: float | None) -> list[Cell]:
    batch = math.prod(call.shape[:-2])
    sizes = " x ".join(str(size) for size in (batch, *call.shape[-2:]))
    return [
        name(short(call.op)),
        sizes,
        name(call.dtype.removeprefix("torch.")),
        units.calls(call.calls_per_step),
        in_ms(ns),
        name(call.site or units.MISSING),
    ]
