"""The ranking as a few lines of Markdown, for a pull request."""

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Final

from qrprof.profiler import units
from qrprof.profiler.coverage import describe
from qrprof.tui.commands import rank
from qrprof.tui.output import Cell, clean
from qrprof.tui.ranking import Ranking, replay_line

TOP: Final = 6  # rows
SHOWN: Final = (0, 1, 2, 3, 6, 7, 8)  # columns of the ranking: not the bar, not the calls
SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|#~!&@])")
COMMAND: Final = re.compile(r"\\`(qrprof [a-z -]+)\\`")  # in advice, escaped
AS_CODE: Final = r"`\1`"


def markdown(ranking: Ranking, redact: Callable[[str], str]) -> str:
    """A table of the first rows, what to do first, and how far to trust it."""

    def plain(text: str) -> str:
        return SPECIAL.sub(r"\\\1", clean(redact(text)))

    def cell(cell: Cell) -> str:
        return plain(cell) if isinstance(cell, str) else code(redact(cell.text))

    def line(cells: Sequence[Cell]) -> str:
        return f"| {' | '.join(cell(cells[place]) for place in SHOWN)} |"

    step = plain(units.time(ranking.partition.step_ns or ranking.partition.recorded_ns))
    command, device = code(redact(shlex.join(ranking.run.command))), plain(rank.device_line(ranking))
    shown, rest = rank.choose(ranking.targets, TOP)
    heads = [rank.TARGETS[place] for place in SHOWN]
    lines = [
        f"**{step}** a step of {command}, {device}",
        "",
        f"| {' | '.join(head.header for head in heads)} |",
        f"|{'|'.join('---:' if head.right else '---' for head in heads)}|",
        *(line(rank.row(number, target)) for number, target in enumerate(shown, start=1)),
        *([line(rank.sums(f"{len(rest)} others", rest))] if rest else []),
        line(rank.sums("total", ranking.targets)),
    ]
    first = rank.do_first(ranking.targets)
    if first:
        numbered = [f"{place}. {COMMAND.sub(AS_CODE, plain(text))}" for place, text in enumerate(first, start=1)]
        lines += ["", *(first if first == rank.NOTHING else numbered)]
    about = [("coverage", describe(ranking.partition.coverage)), ("replay", replay_line(ranking.model))]
    withheld = ranking.partition.withheld
    about += [("noise", rank.noise_line(ranking)), *([("withheld", withheld)] if withheld else [])]
    return "\n".join([*lines, "", *(f"- {label}: {plain(text)}" for label, text in about), ""])


def code(text: str) -> str:
    """A name as code in a table cell, whatever is in it."""
    text = clean(text).replace("|", "\\|")
    runs = re.findall("`+", text)
    fence = "`" * (max(map(len, runs), default=0) + 1)
    return f"{fence} {text} {fence}" if runs else f"{fence}{text}{fence}"
