"""Unified diffs applied strictly: every line of a hunk must stand where it says."""

import re
from collections.abc import Iterator
from typing import Final

HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
Hunk = tuple[int, list[str], list[str]]  # how many lines stand before it, the old lines, the new ones


def lines_of(text: str) -> list[str]:
    """With their ends; only a line feed ends one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def patched(text: str, diff: str, path: str, *, reverse: bool = False) -> str | None:
    """`text` with the diff of `path`; None where the diff is damaged, of another file, or does not fit."""
    lines = lines_of(diff)
    if lines[:2] != [f"--- a/{path}\n", f"+++ b/{path}\n"]:
        return None
    kept, rest, read = [], lines_of(text), 0
    try:
        for begin, old, new in hunks(lines[2:], reverse=reverse):
            if begin < read or rest[begin : begin + len(old)] != old:
                return None
            kept += [*rest[read:begin], *new]
            read = begin + len(old)
    except ValueError:
        return None
    return "".join(kept + rest[read:])


def hunks(lines: list[str], *, reverse: bool) -> Iterator[Hunk]:
    """Raises ValueError for anything that is no hunk."""
    at = 0
    while at < len(lines):
        head = HUNK.fullmatch(lines[at].rstrip("\n"))
        if head is None:
            raise ValueError(lines[at])
        first, count, new_first, new_count = (1 if number is None else int(number) for number in head.groups())
        at += 1
        end = at
        while end < len(lines) and not lines[end].startswith("@@"):
            end += 1
        old, new = side(lines[at:end], " -"), side(lines[at:end], " +")
        if (len(old), len(new)) != (count, new_count):
            raise ValueError(lines[at - 1])
        at = end
        if reverse:
            first, old, new = new_first, new, old
        yield first - bool(old), old, new


def side(lines: list[str], signs: str) -> list[str]:
    """The lines of a hunk with one of these signs; the line `\\ No newline...` is of the one before it."""
    found: list[str] = []
    mine = False
    for line in lines:
        if line.startswith("\\"):
            found[-1:] = [one.removesuffix("\n") if mine else one for one in found[-1:]]
            continue
        if line[0] not in " -+":
            raise ValueError(line)
        mine = line[0] in signs
        found += [line[1:]] * mine
    return found
