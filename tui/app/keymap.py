"""The keys of a person: `config.toml` in the configuration folder may give actions other keys.

[keys]
sort = "o"
next = "n,f"
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from qrprof.profiler.errors import Exit, QrprofError
from qrprof.tui.app.actions import ACTIONS, Action, conflicts
from qrprof.tui.configuration import parsed, read

CHARACTERS: Final = {"slash": "/", "question_mark": "?", "plus": "+", "minus": "-", "full_stop": "."}
SHORT: Final = {"escape": "esc", "comma": ","}


def load_actions(path: Path) -> tuple[Action, ...]:
    """The table of actions with the keys of a file. Raises QrprofError (exit code 2) where it cannot be followed."""
    text = read(path)
    keys = {} if text is None else parsed(path, text).get("keys", {})
    if not isinstance(keys, dict):
        raise QrprofError(f'{path}: keys must be a table: [keys], then lines such as sort = "o"', Exit.USAGE)
    return remapped(ACTIONS, keys, str(path))


def remapped(actions: Sequence[Action], keys: Mapping[str, Any], source: str) -> tuple[Action, ...]:
    """The actions with other keys. Raises QrprofError (exit code 2): an unknown action, a key that two would have."""
    known = [action.id for action in actions]
    for name, key in keys.items():
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; there are {', '.join(known)}"
            raise QrprofError(f"{source}: there is no action {name!r}{hint}", Exit.USAGE)
        if not isinstance(key, str) or not key.strip():
            raise QrprofError(f'{source}: the key of {name!r} must be text, such as "o" or "ctrl+l"', Exit.USAGE)
    changed = tuple(replace(one, key=spelled(keys[one.id])) if one.id in keys else one for one in actions)
    for one, other, key in conflicts(changed):
        raise QrprofError(
            f"{source}: {SHORT.get(key, key)} would be the key of {one.id!r} and of {other.id!r}; give one another key",
            Exit.USAGE,
        )
    return changed


def spelled(keys: str) -> str:
    """Keys as the table has them: a character stands for itself, but for the comma that separates keys."""
    return ",".join(CHARACTERS.get(key, key) for key in map(str.strip, keys.split(",")))


def keys_of(action: Action) -> str:
    """An action's keys as they stand on a keyboard."""
    return " ".join(SHORT.get(key, key) for key in action.key.split(","))
