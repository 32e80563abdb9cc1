"""Defaults of options from outside the command line: environment, a project's file, the person's own file.

All of it is made of click's own parameters: a key is the long name of an option, a table is named after its command.
click then takes the first there is of: the command line, the environment, `default_map`, and the option's own default.
"""

import difflib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.store import config_folder

OWN: Final = "config.toml"  # in the configuration folder
PROJECT: Final = (("qrprof.toml", ()), ("pyproject.toml", ("tool", "qrprof")))  # and where in the file
APART: Final = frozenset({"keys"})  # tables of the person's own file that are no command's
FIXED: Final = frozenset({"completion", "config", "help"})  # commands that no file and no variable changes
EACH_TIME: Final = frozenset({"override", "yes"})  # what a person agrees to knowingly, and not beforehand

# A folder may be a stranger's. Its file may say what is measured and shown; what runs, is sent, or is written where, it
# may not, and neither what has not been thought about.
MEASURED: Final = frozenset(
    {"against", "beam", "budget", "device", "no-samples", "no-shapes", "quick", "range", "repeat", "rounds"}
)
SHOWN: Final = frozenset({"all-ranks", "ascii", "by", "csv", "fail-over", "json", "rank", "redact", "top"})
FROM_A_PROJECT: Final = MEASURED | SHOWN | {"seconds", "steps", "stop", "warmup"}


@dataclass(frozen=True)
class Source:
    """A file of settings; `place` is where in it the tables of commands are."""

    path: Path
    text: str
    tables: Mapping[str, Any]
    place: tuple[str, ...] = ()
    own: bool = False

    def at(self, *keys: str) -> str:
        """The file and the line of these keys."""
        return f"{self.path}, line {line_of(self.text, (*self.place, *keys))}"


@dataclass(frozen=True)
class Setting:
    """A value that a file gives to an option."""

    command: tuple[str, ...]
    option: click.Option
    value: Any
    origin: str


# --- files


def own_file() -> Path:
    return config_folder() / OWN


def sources(here: Path) -> list[Source]:
    """The files that hold in the folder `here`; a later one goes before. Raises QrprofError (exit code 2)."""
    own = own_file()
    found = [Source(own, text, parsed(own, text), own=True)] if (text := read(own)) is not None else []
    project = project_source(here, Path.home())
    return [*found, project] if project else found


def project_source(here: Path, home: Path) -> Source | None:
    """The nearest file with settings, from `here` upwards to `home` or the root."""
    for folder in (here, *here.parents):
        for name, place in PROJECT:
            text = read(folder / name)
            if text is None or (place and place[-1] not in text):
                continue
            tables: Any = parsed(folder / name, text)
            for key in place:
                tables = tables.get(key, {}) if isinstance(tables, dict) else {}
            if tables or not place:
                return Source(folder / name, text, table(tables, f"{folder / name}: {'.'.join(place)}"), place)
        if folder == home:
            break
    return None


def read(path: Path) -> str | None:
    """None: there is no such file."""
    if not os.path.isfile(path):
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise QrprofError(f"cannot read {path}: {error}; mend or remove it", Exit.USAGE) from None


def parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise QrprofError(f"{path} is no TOML: {error}", Exit.USAGE) from None


def line_of(text: str, keys: Sequence[str]) -> int:
    """The line on which the statement begins that gives `keys` a value; 1 where none does."""
    header, statement, first = "", "", 1
    for number, line in enumerate(text.split("\n"), 1):
        statement += line + "\n"
        try:
            found = tomllib.loads(header + statement)
        except tomllib.TOMLDecodeError:
            continue  # it goes on in the next line
        if holds(found, keys):
            return first
        if statement.lstrip().startswith("["):
            header = statement
        statement, first = "", number + 1
    return 1


def holds(found: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(found, dict) or key not in found:
            return False
        found = found[key]
    return True


# --- settings


def default_map(found: Iterable[Setting]) -> dict[str, Any]:
    """Settings as click takes them; of one option the last holds."""
    tree: dict[str, Any] = {}
    for one in found:
        node = tree
        for word in one.command:
            node = node.setdefault(word, {})
        node[str(one.option.name)] = one.value
    return tree


def set_by_files(name: str, command: click.Command, names: Iterable[str], here: Path) -> list[Setting]:
    """What files say of a command and of those below it, what goes before last; `names` are of all commands.

    Raises QrprofError (exit code 2) for what cannot be followed.
    """
    found: list[Setting] = []
    for source in sources(here) if name not in FIXED else ():
        check_tables(source, names)
        found += settings(source, name, command)
    return found


def check_tables(source: Source, names: Iterable[str]) -> None:
    """Raises QrprofError (exit code 2) for a table of no command."""
    known = [name for name in names if name not in FIXED]
    for name in source.tables:
        if name not in known and not (source.own and name in APART):
            raise QrprofError(
                f"{source.at(name)}: no command whose options can be set is called {name!r}; {near(name, known)}",
                Exit.USAGE,
            )


def settings(source: Source, name: str, command: click.Command) -> Iterator[Setting]:
    """What a file says of a command and of those below it. Raises QrprofError (exit code 2)."""
    if name in source.tables:
        yield from settings_below(source, (name,), source.tables[name], (name,), command)


def settings_below(
    source: Source, keys: tuple[str, ...], found: Any, words: tuple[str, ...], command: click.Command
) -> Iterator[Setting]:
    """Those of the table `found` at `keys`, which is that of the command called by `words`."""
    below = command.commands if isinstance(command, click.Group) else {}
    options = options_of(command)
    for key, value in table(found, f"{source.at(*keys)}: {keys[-1]}").items():
        word, origin = key.replace("_", "-"), source.at(*keys, key)
        if word in below:
            yield from settings_below(source, (*keys, key), value, (*words, word), below[word])
        elif word in options:
            permit(source, word, options[word], origin)
            check_value(options[word], value, f"{origin}: {key}")
            yield Setting(words, options[word], value, origin)
        else:
            hint = near(word, [*options, *below])
            raise QrprofError(f"{origin}: `qrprof {' '.join(words)}` has no option {key!r}; {hint}", Exit.USAGE)


def options_of(command: click.Command) -> dict[str, click.Option]:
    """A command's options by their long names, without dashes before them."""
    return {long_name(one): one for one in command.params if isinstance(one, click.Option)}


def long_name(option: click.Option) -> str:
    return next(name for name in option.opts if name.startswith("--")).removeprefix("--")


def permit(source: Source, name: str, option: click.Option, origin: str) -> None:
    """Raises QrprofError (exit code 2) for an option that this file may not set."""
    if name in EACH_TIME:
        raise QrprofError(
            f"{origin}: --{name} is to be said each time; no file and no variable says it beforehand", Exit.USAGE
        )
    harmless = name in FROM_A_PROJECT and not isinstance(option.type, click.Path)
    if not source.own and not harmless:
        raise QrprofError(
            f"{origin}: --{name} is not taken from a project's file, since a stranger's folder could have qrprof run, "
            f"send or write something by it; give it each time, or keep it in {own_file()}",
            Exit.USAGE,
        )


def check_value(option: click.Option, value: Any, what: str) -> None:
    """Raises QrprofError (exit code 2) for a value of another type, or one that the option refuses."""
    kind, types = kind_of(option)
    several = option.multiple or option.nargs != 1
    values = value if several and isinstance(value, list) else [value]
    if several != isinstance(value, list) or not all(type(one) in types for one in values):
        raise QrprofError(f"{what} must be {f'a list, each {kind}' if several else kind}", Exit.USAGE)
    try:
        option.type_cast_value(click.Context(click.Command(None)), value)
    except click.BadParameter as error:
        raise QrprofError(f"{what}: {error.message}", Exit.USAGE) from None


def kind_of(option: click.Option) -> tuple[str, tuple[type, ...]]:
    """What a value must be, in words and as types of TOML; true is not a number."""
    if option.is_flag:
        return "true or false", (bool,)
    if isinstance(option.type, click.types.IntParamType):
        return "a whole number", (int,)
    if isinstance(option.type, click.types.FloatParamType):
        return "a number", (int, float)
    return "text", (str,)


def table(found: Any, what: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise QrprofError(f"{what} must be a table: a line [NAME], then lines such as steps = 5", Exit.USAGE)
    return found


def near(word: str, known: Sequence[str]) -> str:
    found = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {found[0]!r}?" if found else f"there are {', '.join(known)}"


def said(name: str) -> bool:
    """Whether this parameter of the command that runs stands on its command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


# --- the environment


def variable(words: Sequence[str], name: str) -> str:
    return "_".join(("QRPROF", *words, name)).upper().replace("-", "_")


def name_variables(command: click.Command, words: Sequence[str]) -> None:
    """Let each option be given by a variable too: --fail-over of `qrprof diff` by $QRPROF_DIFF_FAIL_OVER."""
    for name, option in options_of(command).items() if words[0] not in FIXED else ():
        if name not in EACH_TIME:
            option.envvar = variable(words, name)
    for word, one in command.commands.items() if isinstance(command, click.Group) else ():
        name_variables(one, (*words, word))
