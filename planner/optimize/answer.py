"""A model's answer read with tolerance: JSON, fenced code, unified diffs, prose around them. No figure is read."""

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from qrprof.planner.gate.static import defines
from qrprof.planner.optimize.patch import Misfit, applied, is_diff
from qrprof.planner.optimize.records import Trouble
from qrprof.profiler.readers.texts import Masked, clean

FIELDS: Final[Mapping[str, str]] = {
    "changed": "One sentence: what is different from the parent.",
    "expects": "One sentence: the effect that this should have, and on which phase of the work.",
    "code": "The whole new file, or a unified diff of the parent with exact context lines.",
}
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {name: {"type": "string", "description": text} for name, text in FIELDS.items()},
    "required": list(FIELDS),
    "additionalProperties": False,
}
FENCE: Final = re.compile(r"^[ \t]*(```+|~~~+)[^\n`]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
OBJECTS: Final = 50  # braces at which JSON is looked for
SENTENCE: Final = 200  # characters kept


@dataclass(frozen=True)
class Answer:
    source: str  # a whole file that parses and defines `candidate`
    changed: str
    expects: str


class Unread(Exception):
    """There is no candidate in the answer; `str()` says why in one sentence."""

    def __init__(self, trouble: Trouble, why: str) -> None:
        super().__init__(why)
        self.trouble = trouble


def read(text: str, parent: str) -> Answer:
    """The candidate in `text`; a diff is one of `parent`, a source. Raises Unread."""
    if not text.strip():
        raise Unread("empty", "the model's answer was empty")
    for record in objects(text):
        if isinstance(code := record.get("code"), str):
            changed, expects = (sentence(str(record.get(name) or "")) for name in ("changed", "expects"))
            return Answer(source_of(code, parent), changed, expects)
    if text.lstrip().startswith("{") and not FENCE.search(text):
        raise Unread("malformed", "the model's answer began as JSON and was none with a `code`")
    return Answer(source_of(text, parent), sentence(FENCE.split(text)[0]), "")


def objects(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects in the text, wherever they begin; a string in one may hold line ends."""
    decoder = json.JSONDecoder(strict=False)
    for brace in list(re.finditer(r"\{", text))[:OBJECTS]:
        try:
            record, _ = decoder.raw_decode(text, brace.start())
        except (ValueError, RecursionError):
            continue
        yield record


def source_of(text: str, parent: str) -> str:
    """The file that a text gives: the last one in it that is whole, else the last diff applied. Raises Unread."""
    parts = [match[2] for match in FENCE.finditer(text)] or [text]
    whole = [part for part in parts if fault(part) is None]
    changes = [part for part in parts if is_diff(part)]
    if whole:
        source = whole[-1]
    elif changes:
        source = patched(changes[-1], parent)
    else:
        code = [part for part in parts if "def candidate" in part]
        if not code:
            raise Unread("no-code", "the model's answer holds no file that defines `candidate`")
        raise Unread("malformed", f"the model's code {fault(code[-1])}")
    return source.strip("\n") + "\n"


def patched(diff: str, parent: str) -> str:
    try:
        source = applied(diff, parent)
    except Misfit as misfit:
        raise Unread("malformed", str(misfit)) from None
    if found := fault(source):
        raise Unread("malformed", f"the parent with the model's diff {found}")
    return source


def fault(source: str) -> str | None:
    """What keeps a text from being a candidate's file; None: nothing that can be seen without running it."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of odd escapes, for instance
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # what the parser raises for odd texts
        return f"does not parse: line {getattr(error, 'lineno', None) or 1}, {error.args[0] if error.args else error}"
    return None if defines(tree, "candidate") else "defines no `candidate`"


def sentence(text: str) -> str:
    """On one line, short, and without what looks like a secret."""
    line = " ".join(clean(text, Masked()).split())
    return line if len(line) <= SENTENCE else f"{line[:SENTENCE].rstrip()} ..."
