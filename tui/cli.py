"""The command line: a table of commands, each imported only when it is called, and the way errors leave."""

import difflib
import importlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click
from click.core import ParameterSource

from qrprof import __version__
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.tui.configuration import default_map, name_variables, set_by_files
from qrprof.tui.output import say

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Entry(NamedTuple):
    name: str
    module: str  # holds the click command as `command`
    help: str


COMMANDS = (
    Entry("trace", "qrprof.tui.commands.trace", "Run a PyTorch program and record what its steps do."),
    Entry("run", "qrprof.tui.commands.run", "Run a PyTorch program with the swaps that you accepted."),
    Entry("verify", "qrprof.tui.commands.verify", "Check that accepted swaps train the same, and what a step gains."),
    Entry("import", "qrprof.tui.commands.import_", "Take over traces of other profilers as a run."),
    Entry("tui", "qrprof.tui.commands.tui", "Look at a run in the terminal."),
    Entry("runs", "qrprof.tui.commands.runs", "List the recorded runs."),
    Entry("rank", "qrprof.tui.commands.rank", "Rank what, if it were faster, would make the step faster."),
    Entry("show", "qrprof.tui.commands.show", "Show one row of the ranking in full."),
    Entry("gaps", "qrprof.tui.commands.gaps", "Show when the device had nothing to do, and why."),
    Entry("launches", "qrprof.tui.commands.launches", "Show what launching costs, and what a CUDA graph would save."),
    Entry("panels", "qrprof.tui.commands.panels", "Take QR calls apart into the phases of their block columns."),
    Entry("probe", "qrprof.tui.commands.probe", "Time the included kernels on the inputs of a run's calls."),
    Entry("ranks", "qrprof.tui.commands.ranks", "Compare the ranks of a run: who waits for whom."),
    Entry("diff", "qrprof.tui.commands.diff", "Compare two runs: what takes more or less time."),
    Entry("whatif", "qrprof.tui.commands.whatif", "Predict the step if parts of it took another time."),
    Entry("path", "qrprof.tui.commands.path", "Show the critical path: what the step waits for."),
    Entry("predictions", "qrprof.tui.commands.predictions", "Compare what was predicted with what was measured."),
    Entry("bench", "qrprof.tui.commands.bench", "Time the included kernels against the libraries'."),
    Entry("kernels", "qrprof.tui.commands.kernels", "Compile the included kernels ahead."),
    Entry("task", "qrprof.tui.commands.task", "Make, list, show and export what candidate kernels are judged by."),
    Entry("gate", "qrprof.tui.commands.gate", "Judge whether a candidate kernel is right, and faster."),
    Entry("verdict", "qrprof.tui.commands.verdict", "Show what the gate found of a candidate."),
    Entry("optimize", "qrprof.tui.commands.optimize", "Search for a faster kernel for what is worth it most."),
    Entry("history", "qrprof.tui.commands.history", "Show what an optimization tried, and what came of it."),
    Entry("hint", "qrprof.tui.commands.hint", "Tell an optimization what to try."),
    Entry("swaps", "qrprof.tui.commands.swaps", "List, accept and undo faster kernels for your programs."),
    Entry("selftest", "qrprof.tui.commands.selftest", "Attack the gate with candidates made to fool it."),
    Entry("report", "qrprof.tui.commands.report", "Write a run as one page to send to somebody."),
    Entry("export", "qrprof.tui.commands.export", "Write a run as a file for another program."),
    Entry("doctor", "qrprof.tui.commands.doctor", "Check what works on this machine."),
    Entry("config", "qrprof.tui.commands.config", "Show what options are set to, and by what."),
    Entry("help", "qrprof.tui.commands.help", "Explain a topic, or how a command is called."),
    Entry("completion", "qrprof.tui.commands.completion", "Print the script by which a shell completes what you type."),
)


def load(entry: Entry) -> click.Command:
    command: click.Command = importlib.import_module(entry.module).command
    if isinstance(command, click.Group):
        command.no_args_is_help = False  # click would raise all of its help as an error
    name_variables(command, (entry.name,))
    return command


class LazyGroup(click.Group):
    """A group that knows its commands by `COMMANDS` alone, so that help and usage errors import none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [entry.name for entry in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = next((one for one in COMMANDS if one.name == cmd_name), None)
        if entry is None:
            return None
        if ctx.resilient_parsing:  # a shell completes
            from qrprof.tui.completing import outlined

            return outlined(entry.module, lambda: load(entry))
        return load(entry)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        if args[0] not in names:
            near = difflib.get_close_matches(args[0], names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
            raise click.UsageError(f"no command {args[0]!r}; {hint}", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if name and command:
            ctx.default_map = default_map(set_by_files(name, command, names, Path.cwd()))
        return name, command, rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        found = [CompletionItem(one.name, help=one.help) for one in COMMANDS if one.name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.help) for entry in COMMANDS])


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: qrprof trace train.py && qrprof rank",
)
@click.version_option(__version__, message="qrprof %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> int | None:
    """Profile an unmodified PyTorch program and learn which kernel, if faster, would make the whole program faster."""
    if ctx.invoked_subcommand is None:
        if importlib.import_module("qrprof.tui.commands.tui").wanted():
            return run(["tui"])
        click.echo(ctx.get_help())
    return None


def usage_line(error: click.ClickException) -> str:
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    option = error.param if isinstance(error, click.BadParameter) else None
    named = ctx and option and ctx.get_parameter_source(str(option.name)) is ParameterSource.ENVIRONMENT
    given = f"; it comes from ${option.envvar}" if named and option else ""
    return f"{error.format_message().rstrip('.')}{given} (see `{ctx.command_path if ctx else 'qrprof'} --help`)"


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; what a person can act on becomes one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a kernel's name must not end a report on a C locale
    try:
        code = cli.main(args, prog_name="qrprof", standalone_mode=False)
        return int(code or Exit.OK)
    except click.ClickException as error:
        say(usage_line(error))
        return Exit.USAGE
    except QrprofError as error:
        say(str(error))
        return error.exit_code
    except PermissionError as error:  # of a folder that is another user's, wherever it is looked into
        say(f"{error.filename} is closed to this user; work in a folder of your own")
        return Exit.FAILED
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return Exit.INTERRUPTED


def main(args: Sequence[str] | None = None) -> NoReturn:
    words = sys.argv[1:] if args is None else list(args)
    if words[:1] not in (["trace"], ["run"], ["verify"]):  # whose child is the person's program
        # pandas keeps text in Arrow, whose own allocator reserves 20 MB for the first column.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        # pydantic looks through all installed packages for plugins, before the first record.
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    sys.exit(run(args))
