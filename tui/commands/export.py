"""`qrprof export`: a run as a file for another program."""

from pathlib import Path

import click

from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.load import load_run
from qrprof.profiler.perfetto import export
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.store import find_run
from qrprof.tui.output import say


@click.command(epilog="Example: qrprof export --perfetto step.json.gz --redact")
@click.argument("run", required=False)
@click.option(
    "--perfetto",
    "path",
    metavar="FILE",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write Chrome JSON that ui.perfetto.dev opens; gzipped where FILE ends in .gz.",
)
@click.option("--redact", "redacted", is_flag=True, help="Leave out paths, users, hosts and what looks like a secret.")
@click.option("--rank", "number", type=click.IntRange(0), default=0, show_default=True, help="Process of the run.")
def command(run: str | None, path: Path, redacted: bool, number: int) -> int:
    """Write a run as a file for another program.

    The trace's events, with the gaps, the QR calls and their block columns as further tracks, and an arrow from each
    launch to its work. RUN is a run's id, the start of one, or its folder; without it, the last run.
    """
    folder = find_run(Path.cwd(), run)
    info, trace = load_run(folder, number)
    refuse_inputs(path, folder, info)
    written = export(trace, path, info, redacted)
    parts = {"event": written.rows, "arrow": written.arrows, "gap": written.gaps, "QR call": written.calls}
    told = ", ".join(f"{count:,} {part}{'s' * (count != 1)}" for part, count in parts.items())
    say(f"wrote {path}: {told}; open it at https://ui.perfetto.dev")
    return Exit.OK


def refuse_inputs(path: Path, folder: Path, run: RunInfo) -> None:
    """Raises QrprofError (exit code 2) where `path` is a file that the run is read from."""
    inputs = [folder / run.trace, *(Path(run.cwd) / argument for argument in run.command)]
    inside = path.exists() and path.resolve().parent == folder.resolve()
    if inside or any(same_file(path, one) for one in inputs):
        raise QrprofError(f"{path} is a file of the run itself; give another name", Exit.USAGE)


def same_file(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:  # one of them is not there
        return False
