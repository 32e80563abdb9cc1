"""All that commands print: data on stdout, talk on stderr.

On a terminal it is coloured and drawn with block glyphs; into a pipe, with NO_COLOR or on a dumb terminal it is
plain ASCII beside the names themselves. Text from traces is never read as markup and holds no control characters.
rich is imported by what draws, so that the command line starts without it.
"""

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.store import replacing
from qrprof.profiler.units import MISSING

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

SCHEMA = 1  # of every JSON record printed
BLUE, ORANGE = "#0072B2", "#D55E00"  # of Okabe and Ito; both readable on black and on white
EIGHTHS = " ▏▎▍▌▋▊▉█"
LONGEST = 600  # cells of a sentence, which may hold names
NARROWEST = 12  # cells that a cut name keeps


def say(message: str) -> None:
    """One line of talk on stderr."""
    print(f"qrprof: {clean(message)}", file=sys.stderr)


def write_json(record: Mapping[str, Any]) -> None:
    """Print `record` with its schema number; inf and NaN become null."""
    put(json.dumps({"schema": SCHEMA, **finite(record)}, indent=2) + "\n")


def save_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write what `write_json` prints to a file, whole or not at all. Raises QrprofError where that cannot be done."""
    try:
        with replacing(path) as temporary:
            temporary.write_text(json.dumps({"schema": SCHEMA, **finite(record)}, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise QrprofError(f"cannot write {path}: {error.strerror}; name another file") from None


def write_csv(table: "pd.DataFrame") -> None:
    """Print a table with a header line; what is missing is an empty cell."""
    put(table.to_csv(index=False))


def finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def put(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()  # a reader that has gone is noticed here, not at exit
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is left in the buffer would fail again at exit, with an exit code of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise QrprofError(f"cannot write the output: {error.strerror}; make room, or send it elsewhere") from None


def fancy() -> bool:
    """Whether stdout is a terminal that takes colours and block glyphs."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    encoding = getattr(sys.stdout, "encoding", None)  # None: Textual's stand-in while the app runs
    return sys.stdout.isatty() and (encoding or "").lower().startswith("utf")


def clean(text: str) -> str:
    """`text` on one line, without control, formatting (bidirectional) and surrogate characters."""
    return "".join(char if char.isprintable() else " " if char.isspace() else "" for char in text)


def middle(text: str, width: int) -> str:
    """`text` in at most `width` cells, both ends kept."""
    return cut(text, width, blocks=fancy())


def cut(text: str, width: int, *, blocks: bool) -> str:
    """As `middle`; without `blocks` in ASCII."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    mark = "…" if blocks else ".."
    head = max(width - len(mark) + 1, 0) // 2
    tail = max(width - len(mark) - head, 0)
    return set_cell_size(text, head) + mark[:width] + set_cell_size(text[::-1], tail)[::-1]


def full(text: str, longest: int = LONGEST) -> str:
    """A name or a sentence as it is printed where it may wrap: all of it, but not pages of it."""
    return middle(clean(text), longest)


def bar(share: float | None, cells: int = 6) -> str:
    """A share of 0..1 as a bar of `cells` cells; what is there at all shows at least one mark."""
    return drawn_bar(share, cells, blocks=fancy())


def drawn_bar(share: float | None, cells: int, *, blocks: bool) -> str:
    """As `bar`; without `blocks` in ASCII."""
    if share is None or not share > 0:
        return ""
    length = min(share, 1.0) * cells
    if not blocks:
        return "#" * round(length) or "."
    eighths = max(round(8 * length), 1)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


@dataclass(frozen=True)
class Name:
    """A name from a trace in a table cell: cut in the middle to the column's width, never wrapped."""

    text: str
    style: str = ""

    def __rich_measure__(self, console: "Console", options: "ConsoleOptions") -> "Measurement":
        from rich.cells import cell_len
        from rich.measure import Measurement

        width = min(cell_len(self.text), options.max_width)
        return Measurement(min(width, NARROWEST), width)

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterable[Text]":
        from rich.text import Text

        yield Text(middle(self.text, options.max_width), self.style, no_wrap=True)


def name(text: str, style: str = "") -> Name:
    return Name(clean(text), style)


class Column(NamedTuple):
    header: str
    right: bool = False
    wraps: bool = False  # takes what width is left; its cells are cut (Name) or folded (str)


Cell = str | Name


def table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], total: Sequence[Cell] | None = None) -> "Table":
    """A table without rules; `total` is set apart from the rows by its weight and a line of dashes."""
    from rich.table import Table
    from rich.text import Text

    def draw(cell: Cell, style: str = "") -> "RenderableType":
        return cell if isinstance(cell, Name) else Text(clean(cell), style, overflow="fold")

    drawn = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in columns:
        drawn.add_column(
            draw(column.header), justify="right" if column.right else "left", no_wrap=not column.wraps, overflow="fold"
        )
    for row in rows:
        drawn.add_row(*(draw(cell) for cell in row))
    if total is not None:
        drawn.add_row(*(draw(cell, "bold") for cell in total))
    return drawn


def field(label: str, text: str, width: int = 9) -> "Table":
    """`label` and the text beside it, wrapped under itself."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(min_width=width, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(label, "dim"), Text(full(text)))
    return grid


def numbered(number: int, text: str) -> "Table":
    return field(f"{number}.", text, width=2)


def title(text: str) -> "Text":
    from rich.text import Text

    return Text(clean(text), "bold")


def write(blocks: "Iterable[RenderableType]") -> None:
    """Print the blocks one below the other; a block "" is an empty line, and no block is read as markup."""
    put(drawn(blocks))


def drawn(blocks: "Iterable[RenderableType]") -> str:
    """What `write` prints."""
    import io

    from rich.console import Console
    from rich.theme import Theme

    styled = fancy()
    console = Console(
        file=io.StringIO(),
        force_terminal=styled,
        color_system="auto" if styled else None,
        theme=Theme({"markdown.code": "bold"}),  # rich's own has a black background
        markup=False,
        highlight=False,
        emoji=False,
    )
    with console.capture() as capture:
        for block in blocks:
            console.print(block)
    text = capture.get()
    if styled:
        return text
    lines = (line.rstrip() for line in text.replace(MISSING, "-").splitlines())
    return "".join(f"{line}\n" for line in lines)
