"""`qrprof export`: a run as a file for another program."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from qrprof.planner.replay.model import model_of
from qrprof.planner.replay.path import CriticalPath, find_path
from qrprof.profiler import units
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.facts import find_facts
from qrprof.profiler.load import load_run
from qrprof.profiler.perfetto import Slice, export_facts
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.store import find_run
from qrprof.tui.output import say

PATH_TRACK: Final = "critical path"


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

    The trace's events, with the critical path, the gaps, the QR calls and their block columns as further tracks, and an
    arrow from each launch to its work. RUN is a run's id, the start of one, or its folder; without it, the last run.
    """
    folder = find_run(Path.cwd(), run)
    info, trace = load_run(folder, number)
    refuse_inputs(path, folder, info)
    facts = find_facts(trace, info)
    model = model_of(facts, info)
    stretches = [] if model.withheld else path_slices(find_path(model))
    written = export_facts(facts, path, info, redacted, stretches)
    if model.withheld:
        say(f"note: the critical path is left out: {model.withheld}")
    parts = {"event": written.rows, "arrow": written.arrows, "gap": written.gaps, "QR call": written.calls}
    if stretches:
        parts["critical path piece"] = len(stretches)
    told = ", ".join(units.counted(count, part) for part, count in parts.items())
    say(f"wrote {path}: {told}; open it at https://ui.perfetto.dev")
    return Exit.OK


def path_slices(path: CriticalPath) -> list[Slice]:
    """The critical path as recorded; stretches that the record has in another step than the replay are left out."""
    shown = path.rows[path.rows["end"] > path.rows["start"]]
    return [path_slice(row) for row in shown.to_dict("records")]


def path_slice(row: Mapping[Any, Any]) -> Slice:
    args = {"bound by": row["bound"], **{key: row[key] for key in ("op", "phase", "where", "step")}}
    replayed = round((row["to_ns"] - row["from_ns"]) / 1000, 3)
    label = f"{row['what']}: {row['name']}" if row["name"] else row["what"]
    return Slice(PATH_TRACK, row["start"], row["end"], label, args | {"us in the calibrated replay": replayed})


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
