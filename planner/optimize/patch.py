"""A unified diff of a model applied to one text: by its context alone, since its line numbers are often wrong."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

HEADER: Final = re.compile(r"@@(?: -(\d{1,9})(?:,\d+)? \+\d+(?:,\d+)? @@)?")


class Misfit(Exception):
    """The diff does not apply; the text says where."""


@dataclass
class Hunk:
    line: int | None  # of the old text, from 1, as the header has it
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)


def is_diff(text: str) -> bool:
    return any(hunk.old != hunk.new for hunk in hunks(text))


def applied(diff: str, source: str) -> str:
    """`source` with all hunks of `diff`, in its order. Raises Misfit: nothing is applied in part, or by likeness."""
    lines = source.split("\n")
    result: list[str] = []
    done = 0
    for number, hunk in enumerate(hunks(diff), 1):
        at = place(lines, hunk, done)
        if at is None:
            raise Misfit(f"hunk {number} of the diff does not fit the parent's text: {start(hunk)!r}")
        result += lines[done:at] + hunk.new
        done = at + len(hunk.old)
    return "\n".join(result + lines[done:])


def hunks(diff: str) -> list[Hunk]:
    """What stands before the first header, or after a hunk, is skipped."""
    found: list[Hunk] = []
    inside = False
    blank = 0  # empty lines, which may be context without its space, or the end of the hunk
    for line in diff.replace("\r\n", "\n").split("\n"):
        if header := HEADER.match(line):
            found.append(Hunk(int(header[1]) if header[1] else None))
            inside, blank = True, 0
        elif not inside or line.startswith("\\"):
            continue
        elif not line:
            blank += 1
        elif line[0] in " +-":
            hunk = found[-1]
            hunk.old += [""] * blank + ([line[1:]] if line[0] != "+" else [])
            hunk.new += [""] * blank + ([line[1:]] if line[0] != "-" else [])
            blank = 0
        else:
            inside = False
    return found


def place(lines: Sequence[str], hunk: Hunk, after: int) -> int | None:
    """Index of the first old line: where the header says, else at the only place where the old lines stand."""
    count = len(hunk.old)
    if count == 0:  # lines are added below the one that the header names
        return hunk.line if hunk.line is not None and after <= hunk.line <= len(lines) else None
    fits = [at for at in range(after, len(lines) - count + 1) if list(lines[at : at + count]) == hunk.old]
    if hunk.line is not None and hunk.line - 1 in fits:
        return hunk.line - 1
    return fits[0] if len(fits) == 1 else None


def start(hunk: Hunk) -> str:
    return next((line.strip() for line in hunk.old if line.strip()), "")[:60]
