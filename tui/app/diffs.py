"""Diffs as they are read: what is new, what is gone, and in a line the words that differ."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Final

from textual.content import Content

HUES: Final = {"+": "bold $primary", "-": "$error"}  # beside the sign, which says the same
WORD: Final = re.compile(r"\w+|\s+|[^\w\s]")
ALIKE: Final = 0.5  # from this likeness on, two lines are one that was changed


def emphasised(lines: Sequence[str]) -> list[Content]:
    """The lines of a unified diff; underlined are the words that the line in the same place has otherwise."""
    drawn = [Content.styled(line, HUES.get(line[:1], "")) for line in lines]
    for old, new in counterparts(lines):
        for place, spans in zip((old, new), changed(lines[old], lines[new]), strict=True):
            for start, end in spans:
                drawn[place] = drawn[place].stylize("underline", start, end)
    return drawn


def counterparts(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The places of what is gone, and of what came there."""
    place = 0
    while place < len(lines):
        new = place + run(lines[place:], "-")
        end = new + run(lines[new:], "+")
        if not lines[place].startswith("--- "):  # of a file's name
            yield from zip(range(place, new), range(new, end), strict=False)
        place = max(end, place + 1)


def run(lines: Sequence[str], sign: str) -> int:
    """How many of the first lines have this sign."""
    return len(list(takewhile(lambda line: line.startswith(sign), lines)))


Spans = list[tuple[int, int]]


def changed(old: str, new: str) -> tuple[Spans, Spans]:
    """The characters of two lines of a diff that only one of them has; none where they are not alike."""
    before, after = WORD.findall(old[1:]), WORD.findall(new[1:])
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    if matcher.ratio() < ALIKE:
        return [], []
    found = [code[1:] for code in matcher.get_opcodes() if code[0] != "equal"]
    return (
        [(at(before, start), at(before, end)) for start, end, _, _ in found if start < end],
        [(at(after, start), at(after, end)) for _, _, start, end in found if start < end],
    )


def at(words: Sequence[str], place: int) -> int:
    """Where a word begins in its line, after the sign."""
    return 1 + sum(map(len, words[:place]))
