"""`qrprof whatif`: the step of a run if parts of it took another time."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.console import RenderableType

from qrprof.planner.estimate import Estimate, ceiling
from qrprof.planner.predictions import forecast
from qrprof.planner.targets import Evidence, below_noise
from qrprof.planner.whatif import (
    Change,
    Sweep,
    WhatIf,
    find_changes,
    look_ups,
    parse_setting,
    subject_of,
    sweep,
    what_if,
)
from qrprof.planner.whatif_parts import Subject
from qrprof.profiler import units
from qrprof.profiler.coverage import describe
from qrprof.profiler.devices import devices_folder, peaks_for
from qrprof.profiler.errors import Exit
from qrprof.profiler.load import load_run
from qrprof.profiler.noise import Noise, of_run
from qrprof.profiler.store import find_run
from qrprof.tui.commands.rank import in_ms, noise_line, step_line
from qrprof.tui.output import Cell, Column, bar, clean, field, name, table, title, write, write_json
from qrprof.tui.ranking import Ranking, noise_ns, replay_line, run_line, to_ms
from qrprof.tui.ranks_whatif import ask_ranks, change_record, ranks_page, ranks_record
from qrprof.tui.remember import remember

BARS: Final = 20  # cells of a bar
ALIKE: Final = 0.01  # of the step: the replay and Amdahl's law say the same
CHANGES: Final = (
    Column("what", wraps=True),
    Column("set to"),
    Column("faster", right=True),
    Column("calls", right=True),
    Column("device, ms", right=True),
    Column("host, ms", right=True),
)
CURVE: Final = (
    Column("faster", right=True),
    Column("step, ms", right=True),
    Column("gain, ms", right=True),
    Column("step", right=True),
    Column(""),
)


@dataclass(frozen=True)
class Answer:
    """What is printed; `swept` is None without --sweep."""

    ranking: Ranking  # without its targets
    found: WhatIf
    step: Estimate
    in_noise: str | None
    swept: Sweep | None


@click.command(epilog="Example: qrprof whatif --set linalg_qr=4x --set launch=0")
@click.argument("run", required=False)
@click.option("--set", "settings", metavar="KEY=SPEC", multiple=True, help="What a part's time becomes. Repeatable.")
@click.option("--sweep", "swept", metavar="KEY", help="Print the step by the speedup of one part.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--rank", "number", type=click.IntRange(0), help="Process of the run.  [default: 0]")
@click.option("--all-ranks", is_flag=True, help="Replay all ranks together, which wait for each other in collectives.")
def command(
    run: str | None,
    settings: tuple[str, ...],
    swept: str | None,
    as_json: bool,
    number: int | None,
    all_ranks: bool,
) -> int:
    """Predict the step if parts of it took another time.

    The trace is replayed with these times. RUN is a run's id, the start of one, or its folder; without it, the last
    run.

    KEY is an op (linalg_qr), the calls of one by the shapes of its first inputs (mm[128x256,256x512]), a kernel (its
    own or whole name, or a part that no other has), launch, sync, copy, comm (communication), optimizer, or gap:CAUSE
    with one of data, sync, copy, alloc, launch, host.

    SPEC is 4x (so much faster; 0.5x is slower), 0 (gone), a time such as 120us (of an op's call, of a kernel's launch,
    of anything else in a mean step), table (of an included kernel) or roofline (of a good kernel on this device).

    With an op goes all that it calls, on the host and on the device; with a kernel only itself. What overlaps
    multiplies.

    \b
    --set 'mm[128x256,256x512]=120us'  a call with such inputs takes 120 us
    --set launch=0                     the step is one CUDA graph
    --set gap:data=0                   batches are there when they are wanted
    --sweep geqr2_smem                 the step by the speedup of a kernel
    --all-ranks --set mm@7=2x          products are faster on rank 7 alone
    """
    if not settings and swept is None:
        raise click.UsageError("nothing to change: give --set KEY=SPEC or --sweep KEY")
    if all_ranks:
        if swept is not None or number is not None:
            raise click.UsageError("--all-ranks takes --set KEY=SPEC or KEY@RANK=SPEC, and neither --sweep nor --rank")
        together = ask_ranks(run, settings)
        if as_json:
            write_json(ranks_record(together))
        else:
            write(ranks_page(together))
        return Exit.OK
    answer = ask(run, number or 0, settings, swept)
    if as_json:
        write_json(record(answer))
    else:
        write(page(answer))
    step_ns = answer.ranking.partition.step_ns
    if settings and step_ns is not None:
        scenario = clean(answer.found.scenario)
        remember([forecast(answer.ranking.run, "whatif", scenario, answer.found.base_ns, answer.step)])
    return Exit.OK


def ask(name: str | None, number: int, settings: Sequence[str], swept: str | None) -> Answer:
    wanted = [parse_setting(text) for text in settings]
    run, trace = load_run(find_run(Path.cwd(), name), number)
    subject = subject_of(run, trace)
    peaks, noise = peaks_for(run, devices_folder()), of_run(run)
    look_up = look_ups(subject, peaks)
    changes = find_changes(subject, wanted, look_up)
    found = what_if(subject, changes)
    return Answer(
        ranking=Ranking(run, trace.warnings, subject.partition, peaks, noise, subject.model, []),
        found=found,
        step=found.estimate(noise),
        in_noise=noise_of(subject, found, noise) if changes else None,
        swept=None if swept is None else sweep(subject, swept.strip(), changes),
    )


# --- the page


def page(answer: Answer) -> list[RenderableType]:
    ranking, found = answer.ranking, answer.found
    blocks: list[RenderableType] = [
        field("run", run_line(ranking.run)),
        field("coverage", describe(ranking.partition.coverage)),
        field("step", step_line(ranking)),
        field("replay", replay_line(ranking.model)),
        field("noise", noise_line(ranking)),
    ]
    if found.changes:
        blocks += ["", table(CHANGES, map(change_row, found.changes)), "", *outcome(answer)]
    if answer.swept:
        blocks += ["", title(f"By the speedup of {clean(answer.swept.part.label)}:"), *curve(answer.swept, found)]
    if remarks := notes(ranking):
        blocks += ["", *(field("note", remark) for remark in remarks)]
    return blocks


def change_row(change: Change) -> list[Cell]:
    part = change.part
    faster = "gone" if change.factor == 0 else units.ratio(1 / change.factor)
    times = (in_ms(ns) if ns else units.MISSING for ns in (part.device_ns, part.host_ns))
    return [name(part.label), change.spec.text, faster, units.calls(part.calls), *times]


def outcome(answer: Answer) -> list[RenderableType]:
    found, step = answer.found, answer.step
    moved = f"{units.time(abs(found.gain_ns))} a step {'gained' if found.gain_ns >= 0 else 'lost'}"
    between = "not known: the noise of the step was not measured"
    if answer.ranking.noise:
        between = f"{units.time(step.low)} and {units.time(step.high)}, by the replay's own errors and the noise"
    lines: list[RenderableType] = [
        field(
            "what if",
            f"{units.time(found.base_ns)} -> {units.time(found.step_ns)}, {units.ratio(found.speedup)}, {moved}",
        ),
        field("between", between),
        field("amdahl", amdahl_line(answer)),
    ]
    return [*lines, field("in noise", answer.in_noise)] if answer.in_noise else lines


def amdahl_line(answer: Answer) -> str:
    """Amdahl's answer, and what the difference to the replay's means."""
    found = answer.found
    if found.amdahl_x is None:
        return f"not told: {answer.ranking.partition.withheld}"
    by_share = found.base_ns / found.amdahl_x
    told = f"{units.ratio(found.amdahl_x)}, {units.time(by_share)}"
    apart = found.step_ns - by_share
    if abs(apart) < ALIKE * found.base_ns:
        return f"{told}: the same, for nothing hides behind other work or waits for it"
    if (apart > 0) == (by_share < found.base_ns):
        return f"{told}: {units.time(abs(apart))} of that are hidden, since other work takes as long meanwhile"
    return f"{told}: {units.time(abs(apart))} more move with it, on the host beside its share or waiting for it"


def curve(swept: Sweep, found: WhatIf) -> list[RenderableType]:
    rows: list[list[Cell]] = [
        [
            "gone" if math.isinf(point.x) else units.ratio(point.x),
            in_ms(point.step_ns),
            in_ms(found.base_ns - point.step_ns),
            units.ratio(point.speedup),
            name(bar(point.step_ns / found.base_ns, BARS)),
        ]
        for point in swept.points
    ]
    slope = f"{units.time(swept.slope_ns)} a step for the first per cent off its time"
    return [
        table(CURVE, rows),
        "",
        field("slope", slope if swept.flat_from is None else f"{slope}; {flat_line(swept)}"),
    ]


def flat_line(swept: Sweep) -> str:
    if swept.flat_from == 1:
        return "flat: off the critical path"
    return f"flat from {units.ratio(swept.flat_from)} on: off the critical path"


def notes(ranking: Ranking) -> list[str]:
    found = []
    if ranking.partition.step_ns is None:
        found.append("no step ran unprofiled: times are as recorded, and hold the profiler's own cost")
    return [*found, *ranking.run.notes, *ranking.warnings]


def noise_of(subject: Subject, found: WhatIf, noise: Noise | None) -> str | None:
    """Why the change would not be seen, as `rank` judges it."""
    partition = subject.partition
    evidence = Evidence(found.base_ns, partition.on_device, False, subject.run, None, noise, None, False)
    return below_noise(ceiling(abs(found.gain_ns)), evidence)


# --- JSON


def record(answer: Answer) -> dict[str, Any]:
    """Times in ms of a mean step."""
    ranking, found, step = answer.ranking, answer.found, answer.step
    noise = ranking.noise
    return {
        "run": ranking.run.id,
        "base_ms": to_ms(found.base_ns),
        "step_ms": to_ms(found.step_ns),
        "speedup": found.speedup,
        "amdahl_x": found.amdahl_x,
        "replay_error": found.replay_error,
        "explained": found.explained,
        "next_step_error": found.next_step_error,
        "low_ms": to_ms(step.low),
        "high_ms": to_ms(step.high),
        "basis": step.basis if found.changes else None,
        "changes": [change_record(change) for change in found.changes],
        "noise": {"name": noise.name, "ms": to_ms(noise_ns(ranking))} if noise else None,
        "in_noise": answer.in_noise,
        "coverage": asdict(ranking.partition.coverage),
        "notes": notes(ranking),
        **(sweep_record(answer.swept) if answer.swept else {}),
    }


def sweep_record(swept: Sweep) -> dict[str, Any]:
    """`x` is null where the part is gone."""
    return {
        "sweep": swept.part.key,
        "points": [{"x": one.x, "step_ms": to_ms(one.step_ns), "speedup": one.speedup} for one in swept.points],
        "slope_ms": to_ms(swept.slope_ns),
        "flat_from": swept.flat_from,
    }
