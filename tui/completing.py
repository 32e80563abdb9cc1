"""What a shell completes: options of commands, runs, tasks and keys, from what is quick to read.

A command imports what it works with, which takes longer than a person waits for a word. So what its options are called
is kept in the cache folder, with the time and the size of its file.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from qrprof import __version__
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.events import CAUSES
from qrprof.profiler.store import FOLDER, RUN_FILE, cache_folder, find_run, make_private, replacing, run_folders

CACHE: Final = "completion.json"
PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:=+-]{0,79}")  # a shell would run what is in $(...)
PARTS: Final = ("launch", "sync", "copy", "comm", "optimizer", *(f"gap:{cause}" for cause in CAUSES))


# --- commands


def outlined(module: str, load: Callable[[], click.Command]) -> click.Command:
    """The command of a module as far as completion goes; `load` imports it, where its file is not known."""
    spec = find_spec(module)
    state = Path(spec.origin or "").stat() if spec else None
    version = [__version__, state and state.st_mtime_ns, state and state.st_size]
    kept = read_cache()
    if kept.get(module, {}).get("version") != version:
        kept[module] = {"version": version, "outline": outline(load())}
        write_cache(kept)
    return restored(kept[module]["outline"])


def outline(command: click.Command) -> dict[str, Any]:
    parameters = [one.to_info_dict() for one in command.params]
    found: dict[str, Any] = {"name": command.name, "help": command.help, "params": parameters}
    if isinstance(command, click.Group):
        found["commands"] = {name: outline(one) for name, one in command.commands.items()}
    return found


def restored(found: Mapping[str, Any]) -> click.Command:
    parameters = [parameter(one) for one in found["params"]]
    if "commands" in found:
        below = {name: restored(one) for name, one in found["commands"].items()}
        return click.Group(found["name"], below, params=parameters, help=found["help"])
    return click.Command(found["name"], params=parameters, help=found["help"])


def parameter(found: Mapping[str, Any]) -> click.Parameter:
    name, names = found["name"], found["opts"]
    if found["param_type_name"] == "argument":
        return click.Argument([name], type=type_of(found), nargs=found["nargs"], required=found["required"])
    if found["is_flag"]:
        return click.Option([name, *names], is_flag=True, help=found["help"])
    several = {"nargs": found["nargs"], "multiple": found["multiple"]}
    return click.Option([name, *names], type=type_of(found), help=found["help"], **several)


def type_of(found: Mapping[str, Any]) -> Any:
    """What click completes a value by."""
    words = next((WORDS[one] for one in found["opts"] if one in WORDS), None)
    if words is not None:
        return Words(words)
    if found["type"]["param_type"] == "Choice":
        return click.Choice(found["type"]["choices"])
    return click.Path() if found["type"]["param_type"] == "Path" or found["name"] in FILES else click.STRING


def read_cache() -> dict[str, Any]:
    try:
        found = json.loads((cache_folder() / CACHE).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_cache(found: Mapping[str, Any]) -> None:
    path = cache_folder() / CACHE
    with suppress(OSError):  # the next word then takes as long
        make_private(path.parent)
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(found, default=str), encoding="utf-8")


# --- words


class Words(click.ParamType):  # type: ignore[type-arg]  # generic only for type checkers
    """Text, of which some is known. What has to be quoted is not offered: it may come out of a stranger's folder."""

    name = "text"

    def __init__(self, known: Callable[[click.Context], Iterable[str]]) -> None:
        self.known = known

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        with suppress(OSError, ValueError, QrprofError):  # a person sees what is wrong when the command runs
            words = (word for word in dict.fromkeys(self.known(ctx)) if PLAIN.fullmatch(word))
            return [CompletionItem(word) for word in words if word.startswith(incomplete)]
        return []


def runs(ctx: click.Context) -> list[str]:
    """The last one first."""
    return [folder.name for folder in run_folders(Path.cwd())][::-1]


def tasks(ctx: click.Context) -> list[str]:
    return sorted(path.parent.name for path in (Path.cwd() / FOLDER / "tasks").glob("*/task.json"))


def ranked(ctx: click.Context) -> Iterator[str]:
    """Keys whose gain in the last run was shown, and the linalg ops that it called.

    click does not say yet which run is meant, where the value of an option is asked for.
    """
    from qrprof.planner.ledger import looked_up
    from qrprof.planner.predictions import listed

    folder = find_run(Path.cwd(), None)
    for one in looked_up(Path.cwd(), listed):
        if one.prediction.run_id == folder.name and one.prediction.source == "rank":
            yield short(one.prediction.scenario.removesuffix("=achievable"))
    for call in json.loads((folder / RUN_FILE).read_bytes())["linalg"]:
        yield short(call["op"])


def short(name: str) -> str:
    """A key without its namespace."""
    return name.rpartition("::")[2]


def parts(ctx: click.Context) -> list[str]:
    """Keys of `whatif`."""
    return [*ranked(ctx), *PARTS]


def changes(ctx: click.Context) -> list[str]:
    return [f"{one}=" for one in parts(ctx)]


def topics(ctx: click.Context) -> list[str]:
    from qrprof.tui.commands.help import TOPICS

    cli = ctx.find_root().command
    return [*TOPICS, *(cli.list_commands(ctx) if isinstance(cli, click.Group) else ())]


FILES: Final = ("script", "args")
WORDS: Final[Mapping[str, Callable[[click.Context], Iterable[str]]]] = {
    "run": runs,
    "a": runs,
    "b": runs,
    "--from": runs,
    "key": ranked,
    "--target": ranked,
    "--sweep": parts,
    "--set": changes,
    "--task": tasks,
    "words": topics,
}
