"""`qrprof help`: pages on topics, which are those of docs/, and the help of commands."""

import os
import sys
from collections.abc import Sequence
from importlib.resources import files
from typing import Final, NamedTuple

import click

from qrprof.profiler.errors import Exit, QrprofError
from qrprof.tui.configuration import near
from qrprof.tui.output import Column, drawn, fancy, put, table, title, write


class Topic(NamedTuple):
    about: str
    page: str  # of docs/
    section: str = ""  # of it; "": all


TOPICS: Final = {
    "recipes": Topic("what to type for common questions, with what it prints", "recipes"),
    "soap": Topic("a tutorial: a slow SOAP step, from trace to an accepted kernel and back", "soap"),
    "tracing": Topic("how steps are found and recorded, and what is kept", "tracing"),
    "ranking": Topic("what the ranking says, and by what it is ordered", "ranking"),
    "what-if": Topic("how a step is replayed, and what KEY and SPEC mean", "whatif"),
    "kernels": Topic("the included QR kernels", "kernels"),
    "accuracy": Topic("how true the figures are, and how that was measured", "accuracy"),
    "gate": Topic("how candidate kernels are judged", "gate"),
    "optimizer": Topic("how candidates are found, by a search or by a model", "optimizer"),
    "swaps": Topic("how kernels get into a running program", "swaps"),
    "verify": Topic("whether accepted swaps train the same, and what a step gains", "verify"),
    "security": Topic("what hostile files, folders and kernels can do, and what they cannot", "security"),
    "terminal-ui": Topic("the terminal UI, its keys and filters", "tui"),
    "tour": Topic("the terminal UI from a ranking to an accepted kernel, screen by screen", "tui-tour"),
    "configuration": Topic("files and variables that options are set by", "configuration"),
    "environment": Topic("environment variables", "configuration", "Environment"),
    "exit-codes": Topic("exit codes", "configuration", "Exit codes"),
    "files": Topic("files and folders that are read and written", "configuration", "Files and folders"),
}


@click.command(epilog="Example: qrprof help what-if")
@click.argument("words", metavar="[TOPIC | COMMAND]", nargs=-1)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> int:
    """Explain a topic, or how a command is called.

    Without one, the topics are listed. What is both, such as gate, is explained as both.
    """
    if not words:
        rows = [(name, topic.about) for name, topic in TOPICS.items()]
        write([title("Topics of `qrprof help TOPIC`:"), table((Column("topic"), Column("about", wraps=True)), rows)])
        return Exit.OK
    found = [called(ctx.find_root(), words), page(" ".join(words))]
    if not any(found):
        cli = ctx.find_root().command
        known = [*TOPICS, *(cli.list_commands(ctx) if isinstance(cli, click.Group) else ())]
        raise QrprofError(f"no topic and no command {' '.join(words)!r}; {near(words[0], known)}", Exit.USAGE)
    show("\n\n".join(text for text in found if text))
    return Exit.OK


def called(above: click.Context, words: Sequence[str]) -> str | None:
    """The help of a command; None where there is none."""
    if not words:
        return above.get_help() + "\n"
    group = above.command
    below = group.get_command(above, words[0]) if isinstance(group, click.Group) else None
    if below is None:
        return None
    with below.make_context(words[0], [], parent=above, resilient_parsing=True) as ctx:
        return called(ctx, words[1:])


def page(name: str) -> str | None:
    """What docs/ says of a topic, for the terminal or as it is written; None where there is none."""
    topic = TOPICS.get(name)
    if topic is None:
        return None
    text = (files("qrprof") / "docs" / f"{topic.page}.md").read_text(encoding="utf-8")
    if topic.section:
        head = f"\n## {topic.section}\n"
        text = head.lstrip() + text.partition(head)[2].partition("\n## ")[0].rstrip() + "\n"
    if not fancy():
        return text
    from rich.markdown import Markdown

    return drawn([Markdown(text, code_theme="ansi_dark", hyperlinks=False)])


def show(text: str) -> None:
    """By a pager on a terminal."""
    if sys.stdout.isatty():
        os.environ.setdefault("LESS", "-FRX")  # as git does: less leaves what fits on the screen
        click.echo_via_pager(text)
    else:
        put(text)
