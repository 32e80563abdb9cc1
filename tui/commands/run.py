"""`qrprof run`: a person's own program with the swaps that they accepted."""

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from qrprof.kernels import swapfile
from qrprof.kernels.modes import Mode, share_of
from qrprof.kernels.running import report
from qrprof.kernels.running.launch import launched
from qrprof.kernels.running.request import Request
from qrprof.planner.swaps.publish import swaps_file
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.recording.launcher import Launch, launch_of
from qrprof.profiler.store import FOLDER
from qrprof.tui import engagement
from qrprof.tui.output import say, write_json


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Example: qrprof run --canary 5% train.py --lr 1e-3",
)
@click.option("-m", "--module", is_flag=True, help="SCRIPT is the name of a module, as in `python -m`.")
@click.option("--shadow", is_flag=True, help="Let both compute and use the stock result; say how far they differ.")
@click.option("--canary", metavar="SHARE", help='Let the swaps serve this share of their calls: "5%" or "0.05".')
@click.option("--report", "full", is_flag=True, help="Say at the end all that the swaps did, not only a line for each.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print {schema, exit_code, swaps, ...} on stdout, after the script's output.",
)
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(
    script: str, args: tuple[str, ...], module: bool, shadow: bool, canary: str | None, full: bool, as_json: bool
) -> int:
    """Run a PyTorch program with the swaps that you accepted.

    SCRIPT, or with -m the module SCRIPT, runs unmodified; all that follows it is its own arguments. Swaps are those of
    .qrprof in the working folder that you accepted on this machine; a swap that does not fit is off, and a line on
    stderr says why. QRPROF_SWAPS=off leaves everything stock. The exit code is the script's.
    """
    mode = mode_of(shadow, canary)
    swaps = accepted(Path.cwd())
    launch = launch_of(os.environ)
    if swaps is None and launch.rank == 0:
        say(f"no swap is accepted in {FOLDER}: {script} runs on stock kernels; see `qrprof swaps list`")
    with TemporaryDirectory(prefix="qrprof-run-") as folder:
        file = Path(folder, "report.json")
        request = Request(swaps=str(swaps) if swaps else None, mode=asdict(mode), report=str(file))
        code = launched(script, args, module, request)
        done = report.read(file)
    if swaps is not None:
        for line in told(done, full, launch):
            say(line)
    if as_json:
        place = {"rank": launch.rank, "world_size": launch.world_size}
        write_json(engagement.record(done, mode) | place | {"exit_code": code})
    return code


def mode_of(shadow: bool, canary: str | None) -> Mode:
    if shadow and canary is not None:
        raise click.UsageError("--shadow uses no swap's result, --canary does; give one of them")
    if canary is not None:
        return Mode("canary", share_of(canary))
    return Mode("shadow") if shadow else Mode()


def accepted(root: Path) -> Path | None:
    """The file of accepted swaps; None where there are none. A damaged one is for the child to refuse."""
    path = swaps_file(root)
    try:
        return path if swapfile.read(path) else None
    except QrprofError:
        return path if os.path.lexists(path) else None


def told(done: engagement.Done | None, full: bool, launch: Launch) -> Iterator[str]:
    """What the swaps did. Rank 0 speaks for all ranks, another one of what went wrong there; in full each does."""
    if launch.rank == 0 and os.environ.get("QRPROF_SWAPS") == "off":
        yield "QRPROF_SWAPS=off: everything ran on stock kernels"
    elif launch.rank == 0 and done is None:
        yield "what the swaps did is not known: the program ended without python's exit, or did not import torch"
    elif done is not None:
        whose = f"rank {launch.rank}: " if launch.rank or (full and launch.world_size > 1) else ""
        lines = engagement.paragraphs(done) if full else engagement.lines(done if launch.rank == 0 else wrong(done))
        yield from (whose + line for line in lines)


def wrong(done: engagement.Done) -> engagement.Done:
    """The swaps whose results or calls failed."""
    return {**done, "swaps": [row for row in done["swaps"] if row["failed"] or row["errors"]]}
