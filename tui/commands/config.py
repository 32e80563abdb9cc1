"""`qrprof config`: what options are set to where none is given, and by which file or variable."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from click.core import ParameterSource

from qrprof.profiler import units
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.tui.configuration import (
    FIXED,
    Setting,
    default_map,
    home,
    near,
    options_of,
    own_file,
    project_source,
    set_by_files,
)
from qrprof.tui.output import Column, field, name, table, write, write_json

DEFAULT: Final = "default"
COLUMNS: Final = (Column("command"), Column("option"), Column("value", wraps=True), Column("from", wraps=True))


class Row(NamedTuple):
    command: str
    option: str
    value: Any
    origin: str  # a file and its line, a variable, or DEFAULT


@click.group(epilog="Example: qrprof config show rank")
def command() -> None:
    """Show what options are set to, and by what.

    `qrprof help configuration` says what can be set, and where.
    """


@command.command(epilog="Example: qrprof config show rank --json")
@click.argument("wanted", metavar="COMMAND", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def show(ctx: click.Context, wanted: str | None, as_json: bool) -> int:
    """Show what each option is where it is not given, and where that comes from.

    Of COMMAND, else of all commands. All that files and variables say is checked.
    """
    cli = ctx.find_root().command
    assert isinstance(cli, click.Group)
    known = [one for one in cli.list_commands(ctx) if one not in FIXED]
    if wanted is not None and wanted not in known:
        raise QrprofError(f"nothing is set for {wanted!r}; {near(wanted, known)}", Exit.USAGE)
    found = [row for one in known if wanted in (None, one) for row in rows(cli, one, known)]
    if as_json:
        write_json({"settings": [row._asdict() | {"value": plain(row.value)} for row in found]})
    else:
        cells = [(row.command, f"--{row.option}", name(text(row.value)), name(row.origin)) for row in found]
        write([table(COLUMNS, cells)])
    return Exit.OK


@command.command(epilog="Example: qrprof config path")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def path(as_json: bool) -> int:
    """Show which files are read: your own, and the nearest one of a project."""
    own, project = own_file(), project_source(Path.cwd(), home())
    if as_json:
        write_json({"own": str(own), "own_exists": own.is_file(), "project": str(project.path) if project else None})
    else:
        nowhere = "none: no qrprof.toml, and no pyproject.toml with [tool.qrprof], from here upwards"
        there = "" if own.is_file() else " (not there)"
        write([field("own", f"{own}{there}"), field("project", str(project.path) if project else nowhere)])
    return Exit.OK


def rows(cli: click.Group, word: str, known: Iterable[str]) -> Iterator[Row]:
    """Those of one command and of what is below it. Raises what the command itself would raise."""
    top = click.Context(cli, info_name="qrprof")
    found = cli.get_command(top, word)
    assert found is not None
    by_files = set_by_files(word, found, known, Path.cwd())
    top.default_map = default_map(by_files)
    yield from rows_below(top, found, (word,), {(*one.command, str(one.option.name)): one for one in by_files})


def rows_below(
    above: click.Context, found: click.Command, words: tuple[str, ...], by_files: Mapping[tuple[str, ...], Setting]
) -> Iterator[Row]:
    ctx = found.make_context(words[-1], [], parent=above, resilient_parsing=True)  # nothing must be given
    for long, option in options_of(found).items():
        source, origin = ctx.get_parameter_source(str(option.name)), DEFAULT
        if source is ParameterSource.ENVIRONMENT:
            option.type_cast_value(ctx, option.value_from_envvar(ctx))
            origin = f"${option.envvar}"
        elif source is ParameterSource.DEFAULT_MAP:
            setting = by_files[(*words, str(option.name))]
            origin = setting.source.at(setting.keys)
        yield Row(" ".join(words), long, ctx.params[str(option.name)], origin)
    for word, one in found.commands.items() if isinstance(found, click.Group) else ():
        yield from rows_below(ctx, one, (*words, word), by_files)


def plain(value: Any) -> Any:
    """A value as JSON holds it."""
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value if isinstance(value, bool | int | float | None) else str(value)


def text(value: Any) -> str:
    """A value as it stands in a table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(text, value)) or units.MISSING
    return units.MISSING if value is None else str(value)
