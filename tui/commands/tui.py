"""`qrprof tui`: the terminal UI."""

import os
import sys
from pathlib import Path

import click

from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.store import find_run, run_folders


@click.command(epilog="Example: qrprof tui 20260131-1200")
@click.argument("run", required=False)
@click.option("--rank", "number", type=click.IntRange(0), default=0, show_default=True, help="Process of the run.")
@click.option("--ascii", "plain", is_flag=True, help="Draw without block glyphs.")
def command(run: str | None, number: int, plain: bool) -> int:
    """Look at a run in the terminal.

    It shows bottlenecks, the timeline, launches and QR panels, optimizations, and what may be accepted. RUN is a run's
    id, the start of one, or its folder; without it, the last run. Where there is no run yet, the app offers to trace a
    script or to open an example. `?` shows the keys.
    """
    if not interactive():
        raise QrprofError(
            "the terminal UI needs a terminal; its views are commands too: `qrprof rank`, gaps, launches, panels,"
            " history, swaps",
            Exit.USAGE,
        )
    return open_app(run, number, plain=plain or not (sys.stdout.encoding or "").lower().startswith("utf"))


def interactive() -> bool:
    """Whether a person sits at both ends."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def wanted() -> bool:
    """Whether plain `qrprof` opens the app: on a terminal, with a run to show."""
    return interactive() and any(run_folders(Path.cwd()))


def open_app(run: str | None, number: int, *, plain: bool) -> int:
    from qrprof.tui.app.app import QrprofApp
    from qrprof.tui.app.glyphs import Glyphs
    from qrprof.tui.app.keymap import load_actions
    from qrprof.tui.app.session import Session
    from qrprof.tui.app.state import load_state, save_state, state_file
    from qrprof.tui.configuration import own_file

    root = Path.cwd()
    actions = load_actions(own_file())
    there = run is not None or any(run_folders(root))
    session = Session(find_run(root, run), number) if there else None
    app = QrprofApp(session, root, actions=actions, glyphs=Glyphs(plain), kept=load_state(state_file()))
    app.run()
    save_state(state_file(), app.kept())
    return app.return_code or Exit.OK
