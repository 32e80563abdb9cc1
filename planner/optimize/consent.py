"""Whether this person has agreed that a host is sent prompts. Kept in the user's configuration folder, by host."""

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.store import config_folder, make_private, write_private

FILE: Final = "endpoints.json"
SCHEMA: Final = 1
SENT: Final = (
    "the op with its shapes and dtypes, the source of the candidates, figures of the profile and of the gate, lessons, "
    "and your hints; no data of your program, and no key but the one that the host is asked with"
)


def needed(url: str) -> bool:
    """Whether nobody has agreed yet that the host of this address is sent prompts."""
    return host_of(url) not in agreed()


def question(url: str, models: Iterable[str]) -> str:
    """What a person is asked, one line."""
    named = ", ".join(dict.fromkeys(models))
    return f"Prompts will go to {host_of(url)}, model {named}. Sent are {SENT}."


def ask(url: str, models: Iterable[str], now: datetime, *, yes: bool, confirm: Callable[[str], bool] | None) -> None:
    """Have a person agree, once for each host; `yes` is an answer given beforehand.

    `confirm` shows a text and says whether the answer was yes; None: there is no terminal. Raises QrprofError (exit
    code 3) where nobody agreed.
    """
    if not needed(url):
        return
    asked = question(url, models)
    if not yes and confirm is None:
        raise QrprofError(f"{asked} Nobody has agreed to that yet: give --yes, or ask on a terminal", Exit.REFUSED)
    if not yes and confirm is not None and not confirm(asked):
        raise QrprofError(f"nothing was sent to {host_of(url)}; without a model: --proposer search", Exit.REFUSED)
    agree(url, now)


def host_of(url: str) -> str:
    """`api.openai.com`, `127.0.0.1:8000`: without what may stand before an @.

    Raises QrprofError (exit code 2) for what is no address.
    """
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        parts, port = urlsplit(""), ""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise QrprofError("OPENAI_BASE_URL is no address: give one as https://api.openai.com/v1", Exit.USAGE)
    return f"{parts.hostname}{port}"


def agreed() -> dict[str, str]:
    """Hosts, each with the time at which a person agreed. A file that cannot be read is no consent."""
    try:
        record = json.loads((config_folder() / FILE).read_bytes())
        return dict(record["hosts"]) if record["schema"] == SCHEMA else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def agree(url: str, now: datetime) -> None:
    """Keep that this host may be sent prompts, in a file that only the user reads. Raises QrprofError."""
    folder = config_folder()
    record = {"schema": SCHEMA, "hosts": agreed() | {host_of(url): now.isoformat(timespec="seconds")}}
    try:
        make_private(folder)
        write_private(folder / FILE, json.dumps(record, indent=1))
    except OSError as error:
        raise QrprofError(f"cannot write {folder / FILE}: {error.strerror}; make it writable") from None
