"""What a report is made of, before anybody escapes or draws it: sections of plain blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from qrprof.tui.output import Name

OTHER = 0  # the hue of what has none of its own


class Bar(NamedTuple):
    """A share of 0..1 that is drawn; None: nothing is."""

    share: float | None
    hue: int = OTHER


class Stack(NamedTuple):
    """(name, share, hue) of parts whose shares sum to 1, drawn side by side."""

    parts: Sequence[tuple[str, float, int]]


Cell = str | Name | Bar | Stack


class Head(NamedTuple):
    label: str
    right: bool = False
    spare: bool = False  # left out where the page is narrow


class Row(NamedTuple):
    cells: Sequence[Cell]
    says: Sequence[str] = ()  # sentences below it, the first one the weightiest


@dataclass(frozen=True)
class Table:
    title: str
    heads: Sequence[Head]
    rows: Sequence[Row]
    total: Sequence[Cell] | None = None
    note: str = ""


@dataclass(frozen=True)
class Fields:
    """Labels with a sentence each."""

    pairs: Sequence[tuple[str, str]]
    title: str = ""


@dataclass(frozen=True)
class Items:
    """Sentences, numbered where there is an order."""

    title: str
    texts: Sequence[str]
    numbered: bool = False


@dataclass(frozen=True)
class Slot:
    """A place that the page's script fills; without it the sentence stands there."""

    name: str
    otherwise: str


Block = Table | Fields | Items | Slot | Stack


@dataclass(frozen=True)
class Section:
    name: str  # in links to it
    title: str
    blocks: Sequence[Block] = field(default_factory=list)
    lead: str = ""  # a sentence below the title
