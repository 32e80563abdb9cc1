"""Bars of several parts."""

from collections.abc import Iterable
from typing import NamedTuple

from rich.text import Text


class Part(NamedTuple):
    """A part of a bar: it reads by its letter, without its hue too."""

    letter: str
    hue: str
    share: float  # of the bar's whole width


def stacked(parts: Iterable[Part], cells: int) -> Text:
    """The parts side by side, each a run of its letter; shares that sum to 1 fill all cells."""
    drawn, reached, done = Text(), 0.0, 0
    for part in parts:
        reached += part.share
        end = round(reached * cells)
        drawn.append(part.letter * (end - done), part.hue)
        done = end
    return drawn
