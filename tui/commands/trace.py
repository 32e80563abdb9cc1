"""`qrprof trace`: record a run of the person's own script."""

from pathlib import Path
from typing import Any

import click

from qrprof.profiler.recording.spawn import TraceOptions, trace
from qrprof.tui.output import write_json


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Example: qrprof trace --steps 10 train.py --lr 1e-3",
)
@click.option("-m", "--module", is_flag=True, help="SCRIPT is the name of a module, as in `python -m`.")
@click.option("--steps", type=click.IntRange(1), default=5, show_default=True, help="Steps to record.")
@click.option("--warmup", type=click.IntRange(0), default=3, show_default=True, help="Steps before anything is timed.")
@click.option(
    "--range", "range_name", metavar="NAME", help="A step is this record_function or NVTX range, not an optimizer step."
)
@click.option("--stop", is_flag=True, help="End the script once the steps are recorded.")
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True, help="Runs, for the run-to-run noise.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("."),
    help="Folder of the .qrprof folder to write to; default: the working folder.",
)
@click.option("--no-shapes", is_flag=True, help="Do not record the shapes of the ops' inputs.")
@click.option("--no-samples", is_flag=True, help="Keep no matrices of linalg calls.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print {schema, run, exit_code} on stdout, after the script's own output."
)
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(script: str, as_json: bool, no_shapes: bool, no_samples: bool, **same: Any) -> int:
    """Run a PyTorch program and record what its steps do.

    SCRIPT, or with -m the module SCRIPT, runs unmodified; all that follows it is its own arguments. The exit code is
    the script's.
    """
    result = trace(TraceOptions(script=script, shapes=not no_shapes, samples=not no_samples, **same))
    if as_json:
        write_json({"run": result.run.name if result.run else None, "exit_code": result.exit_code})
    return result.exit_code
