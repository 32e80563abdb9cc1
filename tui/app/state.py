"""What survives a restart: one small file in the user's cache. It may be deleted, and is never needed."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from qrprof.profiler.store import cache_folder, make_private, replacing

SCHEMA: Final = 1


@dataclass(frozen=True)
class Kept:
    view: str = ""
    key: str = ""  # that is selected
    sort: str = ""  # a column's id; with "-" before it, the largest come last
    filter: str = ""
    theme: str = ""


def state_file() -> Path:
    return cache_folder() / "tui.json"


def load_state(path: Path) -> Kept:
    """What was kept; nothing where the file is missing, broken or of another version."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Kept()
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        return Kept()
    texts = {one.name: record.get(one.name) for one in fields(Kept)}
    return Kept(**{name: text for name, text in texts.items() if isinstance(text, str)})


def save_state(path: Path, kept: Kept) -> None:
    """Keep it, whole or not at all; where it cannot be written, the next start begins afresh."""
    with suppress(OSError):
        make_private(path.parent)
        with replacing(path) as temporary:
            temporary.write_text(json.dumps({"schema": SCHEMA, **asdict(kept)}), encoding="utf-8")
