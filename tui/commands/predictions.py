"""`qrprof predictions`: what was predicted, what was measured, and how far apart they are."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import pandas as pd
from rich.console import RenderableType

from qrprof.planner.ledger import looked_up, opened
from qrprof.planner.predictions import Listed, Prediction, Summary, device_of, find, listed, measured, summary
from qrprof.profiler import units
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.noise import of_run
from qrprof.profiler.runinfo import read_run_info
from qrprof.profiler.store import FOLDER, RUN_FILE, find_run
from qrprof.tui.commands.rank import in_ms
from qrprof.tui.output import Cell, Column, name, say, table, write, write_csv, write_json
from qrprof.tui.ranking import short, to_ms

COLUMNS: Final = (
    Column("id", right=True),
    Column("run", wraps=True),
    Column("scenario", wraps=True),
    Column("step, ms", right=True),
    Column("predicted", right=True),
    Column("measured", right=True),
    Column("error", right=True),
)
CSV: Final = (
    *("id", "run", "made_at", "source", "scenario", "basis", "step_ns", "low_ns", "mid_ns", "high_ns"),
    *("device", "version", "measured_run", "measured_at", "measured_ns", "measured_noise", "error", "within"),
)


@click.command(epilog="Example: qrprof predictions --measured 3 20260201-0900")
@click.option("--json", "as_json", is_flag=True, help="Print all predictions as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all predictions as CSV, times in ns.")
@click.option("--top", type=click.IntRange(1), default=12, show_default=True, help="Rows of the table.")
@click.option(
    "--measured",
    "outcome",
    type=(click.IntRange(1), str),
    metavar="ID RUN",
    help="Keep RUN's unprofiled step as what came of prediction ID, and show that one.",
)
def command(as_json: bool, as_csv: bool, top: int, outcome: tuple[int, str] | None) -> int:
    """Compare what was predicted with what was measured.

    Every gain that `qrprof rank` shows is kept: its step with a good kernel, as an interval. RUN is a run's id, the
    start of one, or its folder, recorded once the scenario had come true. "error" is how far the measured step is from
    the middle of the prediction (without one, from the nearer end of the interval), in per cent of the measured step:
    above 0, it is slower than predicted.
    """
    if as_json and as_csv:
        raise click.UsageError("give --json or --csv, not both")
    if outcome:
        attach(*outcome)
    kept = looked_up(Path.cwd(), listed)
    shown = [one for one in kept if outcome is None or one.prediction.id == outcome[0]]
    if as_json:
        write_json({"predictions": [record(one) for one in shown], "summary": asdict(summary(kept))})
    elif as_csv:
        write_csv(pd.DataFrame([flat(one) for one in shown], columns=CSV, dtype=object))
    elif shown:
        write(page(shown, summary(kept), top))
    else:
        say(f"no predictions in {FOLDER}; `qrprof rank` makes some of a run")
    return Exit.OK


def attach(prediction_id: int, wanted: str) -> None:
    """Keep the step of the run called `wanted` as what came of a prediction.

    Raises QrprofError (exit code 2) where either is unknown, the run has no unprofiled step, or was on another device.
    """
    run = read_run_info(find_run(Path.cwd(), wanted) / RUN_FILE)
    step = run.step_ns()
    if step is None or step < 1:
        raise QrprofError(
            f"run {run.id} has no unprofiled step to measure by ({run.step_source}); record it with `qrprof trace`",
            Exit.USAGE,
        )
    noise = of_run(run)
    with opened(Path.cwd()) as connection:
        prediction = find(connection, prediction_id)
        if device_of(run) != prediction.device:
            raise QrprofError(
                f"run {run.id} was on {device_of(run) or 'an unknown device'}, prediction {prediction_id} is for "
                f"{prediction.device or 'an unknown device'}; give a run on that one",
                Exit.USAGE,
            )
        measured(connection, prediction_id, run.id, step, noise.fraction if noise else None, datetime.now(UTC))


# --- the page


def page(shown: Sequence[Listed], result: Summary, top: int) -> list[RenderableType]:
    rows = [row(one) for one in shown[:top]]
    if len(shown) > top:
        rows.append(["", f"{len(shown) - top} others", *[""] * (len(COLUMNS) - 2)])
    return [table(COLUMNS, rows), "", summary_line(result)]


def row(one: Listed) -> list[Cell]:
    made, found = one.prediction, one.measurement
    return [
        str(made.id),
        name(made.run_id),
        name(short(made.scenario)),
        in_ms(made.base_ns),
        interval(made),
        in_ms(found.step_ns if found else None),
        signed(one.error),
    ]


def interval(made: Prediction) -> str:
    ends = in_ms(made.low_ns), in_ms(made.high_ns)
    return ends[0] if made.low_ns == made.high_ns else "..".join(ends)


def signed(error: float | None) -> str:
    return units.share(error) if error is None or error < 0 else f"+{units.share(error)}"


def summary_line(result: Summary) -> str:
    if not result.measured:
        return f"none of {result.predictions} measured yet: `qrprof predictions --measured ID RUN`"
    return (
        f"{result.measured} of {result.predictions} measured; median absolute error "
        f"{units.share(result.median_error)}; {result.within} of {result.measured} inside the predicted interval"
    )


# --- the record


def record(one: Listed) -> dict[str, Any]:
    """Times in ms of a mean step; `error` is a fraction of the measured one."""
    made, found = one.prediction, one.measurement
    outcome = found and {
        "run": found.run_id,
        "at": found.at,
        "step_ms": to_ms(found.step_ns),
        "noise": found.noise,
        "error": one.error,
        "within": one.within,
    }
    return {
        "id": made.id,
        "run": made.run_id,
        "made_at": made.made_at,
        "source": made.source,
        "scenario": made.scenario,
        "basis": made.basis,
        "step_ms": to_ms(made.base_ns),
        "predicted_ms": {"low": to_ms(made.low_ns), "mid": to_ms(made.mid_ns), "high": to_ms(made.high_ns)},
        "device": made.device,
        "version": made.version,
        "measured": outcome,
    }


def flat(one: Listed) -> list[object]:
    """The cells of `CSV`."""
    made, found = one.prediction, one.measurement
    before = [made.id, made.run_id, made.made_at, made.source, made.scenario, made.basis]
    numbers = [made.base_ns, made.low_ns, made.mid_ns, made.high_ns, made.device, made.version]
    after = [found.run_id, found.at, found.step_ns, found.noise] if found else [None] * 4
    return [*before, *numbers, *after, one.error, one.within]
