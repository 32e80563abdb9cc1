"""One file out of several candidates, each for its sizes, and the starting file for all other inputs.

Every file stays a namespace of its own, so that no two names meet. Its text stands in the new file as it is, and is
compiled with its own line numbers there: what looks up a function's source, as Triton does, finds it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from qrprof.planner.optimize.lanes import Box

TITLE: Final = '"""Kernels by the sizes of their input; the last one answers for all that no other was judged on."""'
HEAD: Final = f"""{TITLE}

import torch


def loaded(text, line):
    names = {{"__name__": __name__, "__file__": __file__}}
    exec(compile("\\n" * line + text, __file__, "exec", dont_inherit=True), names)
    return names


"""
TAIL: Final = """
LANES = (
{lanes})
OTHERS = {others}["candidate"]
{kernels}

def candidate(*args):
    x = args[{position}]
    sizes = x.shape[{first}:] if x.dim() > 1 else x.shape
    for dtype, low, high, lane in LANES:
        if x.dtype == dtype and len(sizes) == len(low) and all(a <= n <= b for a, n, b in zip(low, sizes, high)):
            return lane(*args)
    return OTHERS(*args)
"""


class Part(NamedTuple):
    """A candidate's file, and the inputs that it answers for."""

    source: str
    boxes: tuple[Box, ...]


def compose(parts: Sequence[Part], others: str, position: int, first: int) -> str:
    """The file. `position`: of the argument whose sizes choose, without the `first` of several."""
    files = list(dict.fromkeys([*(part.source for part in parts), others]))
    text = HEAD
    for number, source in enumerate(files):
        line = text.count("\n")
        text += f"FILE_{number} = {literal(source)}\nMODULE_{number} = loaded(FILE_{number}, {line})\n"
    entries = [
        f'    (torch.{dtype}, {low}, {high}, MODULE_{files.index(part.source)}["candidate"]),\n'
        for part in parts
        for dtype, low, high in part.boxes
    ]
    modules = [f"MODULE_{number}" for number in range(len(files))]
    kernels = (
        f'if all("KERNELS" in names for names in ({", ".join(modules)},)):\n'
        f'    KERNELS = [kernel for names in ({", ".join(modules)},) for kernel in names["KERNELS"]]\n'
    )
    return text + TAIL.format(
        lanes="".join(entries),
        others=modules[files.index(others)],
        kernels=kernels,
        position=position,
        first=first,
    )


def is_composed(source: str, start: str = "") -> bool:
    """Whether a file is several in one. Where that holds for the starting file `start`, it says nothing of changes."""
    return source.startswith(TITLE) and not start.startswith(TITLE)


def literal(source: str) -> str:
    """A string literal that begins on its second line, whose lines are those of the text wherever that can be."""
    text = "\n" + source if source.endswith("\n") else f"\n{source}\n"
    for quotes in ("'''", '"""'):
        if quotes not in text:
            return f"r{quotes}{text}{quotes}"
    return "'''" + text.replace("\\", "\\\\").replace("'''", "\\'\\'\\'") + "'''"
