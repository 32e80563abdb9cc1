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

# A folder may be a stranger's. Its file may say what is measured and shown; what runs, is sent or spent, or is written
# where, it may not, and neither what has not been thought about.
MEASURED: Final = frozenset(
    {"against", "beam", "device", "no-samples", "no-shapes", "quick", "range", "repeat", "rounds"}
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

    def at(self, keys: Sequence[str]) -> str:
        """The file and the line of these keys."""
        return f"{self.path}, line {line_of(self.text, (*self.place, *keys))}"

    def error(self, keys: Sequence[str], text: str) -> QrprofError:
        return QrprofError(f"{self.at(keys)}: {text}", Exit.USAGE)


@dataclass(frozen=True)
class Setting:
    """A value that a file gives to an option."""

    command: tuple[str, ...]
    option: click.Option
    value: Any
    source: Source
    keys: tuple[str, ...]  # in the source


# --- files


def own_file() -> Path:
    return config_folder() / OWN


def sources(here: Path) -> list[Source]:
    """The files that hold in the folder `here`; a later one goes before. Raises QrprofError (exit code 2)."""
    own = own_file()
    found = [Source(own, text, parsed(own, text), own=True)] if (text := read(own)) is not None else []
    project = project_source(here, home())
    return [*found, project] if project else found


def home() -> Path:
    """A folder that is not there, where the user has none."""
    return Path(os.path.realpath(os.path.expanduser("~")))


def project_source(here: Path, last: Path) -> Source | None:
    """The nearest file with settings, from `here` upwards to `last` or the root."""
    for folder in (here, *here.parents):
        for name, place in PROJECT:
            text = read(folder / name)
            if text is None or (place and place[-1] not in text):
                continue
            tables: Any = parsed(folder / name, text)
            for key in place:
                tables = tables.get(key, {}) if isinstance(tables, dict) else {}
            if not isinstance(tables, dict):
                raise QrprofError(f"{folder / name}: {'.'.join(place)} must be a table", Exit.USAGE)
            if tables or not place:
                return Source(folder / name, text, tables, place)
        if folder == last:
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
    except (ValueError, RecursionError) as error:  # the latter of lists in lists, without end
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
            hint = near(name, known)
            raise source.error([name], f"no command whose options can be set is called {name!r}; {hint}")


def settings(source: Source, name: str, command: click.Command) -> Iterator[Setting]:
    """What a file says of a command and of those below it. Raises QrprofError (exit code 2)."""
    if name in source.tables:
        yield from settings_below(source, (name,), source.tables[name], (name,), command)


def settings_below(
    source: Source, keys: tuple[str, ...], found: Any, words: tuple[str, ...], command: click.Command
) -> Iterator[Setting]:
    """Those of the table `found` at `keys`, which is that of the command called by `words`."""
    if not isinstance(found, dict):
        raise source.error(keys, f"{keys[-1]} must be a table: a line [NAME], then lines such as steps = 5")
    below = command.commands if isinstance(command, click.Group) else {}
    options = options_of(command)
    for key, value in found.items():
        word, place = key.replace("_", "-"), (*keys, key)
        if word in below:
            yield from settings_below(source, place, value, (*words, word), below[word])
        elif word not in options:
            hint = near(word, [*options, *below])
            raise source.error(place, f"`qrprof {' '.join(words)}` has no option {key!r}; {hint}")
        elif why := refused(source, word, options[word]) or misfit(options[word], value):
            raise source.error(place, f"{key} {why}")
        else:
            yield Setting(words, options[word], value, source, place)


def options_of(command: click.Command) -> dict[str, click.Option]:
    """A command's options by their long names, without dashes before them."""
    return {long_name(one): one for one in command.params if isinstance(one, click.Option)}


def long_name(option: click.Option) -> str:
    return next(name for name in option.opts if name.startswith("--")).removeprefix("--")


def refused(source: Source, name: str, option: click.Option) -> str | None:
    """Why this file may not set an option."""
    if name in EACH_TIME:
        return "is to be said each time; no file and no variable says it beforehand"
    if source.own or (name in FROM_A_PROJECT and not isinstance(option.type, click.Path)):
        return None
    return (
        "is not taken from a project's file, since a stranger's folder could have qrprof run, send or write something "
        f"by it; give --{name} each time, or keep it in {own_file()}"
    )


def misfit(option: click.Option, value: Any) -> str | None:
    """Why an option cannot be this value: it is of another type, or the option does not take it."""
    kind, types = kind_of(option)
    several = option.multiple or option.nargs != 1
    values = value if several and isinstance(value, list) else [value]
    if several != isinstance(value, list) or not all(type(one) in types for one in values):
        return f"must be {f'a list, each {kind}' if several else kind}"
    try:
        option.type_cast_value(click.Context(click.Command(None)), value)
    except click.BadParameter as error:
        return f"cannot be {value}: {error.message}"
    return None


def kind_of(option: click.Option) -> tuple[str, tuple[type, ...]]:
    """What a value must be, in words and as types of TOML; true is not a number."""
    if option.is_flag:
        return "true or false", (bool,)
    if isinstance(option.type, click.types.IntParamType):
        return "a whole number", (int,)
    if isinstance(option.type, click.types.FloatParamType):
        return "a number", (int, float)
    return "text", (str,)


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
