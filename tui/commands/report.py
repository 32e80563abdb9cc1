"""`qrprof report`: a run as one file for somebody else."""

from pathlib import Path

import click

from qrprof.profiler import units
from qrprof.profiler.errors import Exit
from qrprof.profiler.perfetto import written
from qrprof.profiler.store import find_run
from qrprof.tui.commands.export import refuse_inputs
from qrprof.tui.output import put, say


@click.command(epilog="Example: qrprof report --html report.html --redact")
@click.argument("run", required=False)
@click.option(
    "--html",
    "page",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write one self-contained page.",
)
@click.option(
    "--markdown",
    "text",
    metavar="[FILE]",
    is_flag=False,
    flag_value="-",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Print a short table for a pull request, or write it to FILE.",
)
@click.option("--redact", "redacted", is_flag=True, help="Leave out paths, users, hosts and what looks like a secret.")
@click.option("--rank", "number", type=click.IntRange(0), default=0, show_default=True, help="Process of the run.")
def command(run: str | None, page: Path | None, text: Path | None, redacted: bool, number: int) -> int:
    """Write a run as one page to send to somebody.

    The page holds the ranking with advice, what-ifs that answer in it, timeline, gaps, launches, QR panels, suggestions
    with their evidence, and predictions beside measurements. It needs no network and asks for none. RUN is a run's id,
    the start of one, or its folder; without it, the last run.
    """
    from qrprof.tui.app.session import Session
    from qrprof.tui.report.markdown import markdown
    from qrprof.tui.report.page import redactor_of, write_page

    if page is None and text is None:
        raise click.UsageError("nothing to write: give --html FILE or --markdown")
    session = Session(find_run(Path.cwd(), run), number)
    for path in (page, text):
        if path is not None and path != Path("-"):
            refuse_inputs(path, session.folder, session.run)
    redact = redactor_of(session, redacted)
    if page is not None:
        save(page, write_page(session, Path.cwd(), redact))
        say(f"wrote {page}: {units.size(page.stat().st_size)}; open it in a browser")
    if text == Path("-"):
        put(markdown(session.ranking, redact))
    elif text is not None:
        save(text, markdown(session.ranking, redact))
        say(f"wrote {text}")
    return Exit.OK


def save(path: Path, text: str) -> None:
    with written(path) as file:
        file.write(text)
