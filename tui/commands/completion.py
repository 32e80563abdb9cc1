"""`qrprof completion`: the script by which a shell completes what is typed."""

import click
from click.shell_completion import get_completion_class

from qrprof.profiler.errors import Exit
from qrprof.tui.output import put

SHELLS = ("bash", "zsh", "fish")


@click.command(epilog="Example: qrprof completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Print the script by which a shell completes what you type.

    It completes commands, options, runs, tasks and the keys of a ranking.

    \b
    bash  qrprof completion bash >> ~/.bashrc
    zsh   qrprof completion zsh >> ~/.zshrc
    fish  qrprof completion fish > ~/.config/fish/completions/qrprof.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    put(found(ctx.find_root().command, {}, "qrprof", "_QRPROF_COMPLETE").source() + "\n")
    return Exit.OK
