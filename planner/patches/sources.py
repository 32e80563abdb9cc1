"""The project's own files that a run's program is made of: its script, and what that imports from the project."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from qrprof.planner.patches.patch import own_file
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.runinfo import RunInfo

MOST_FILES: Final = 200
MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Source:
    path: str  # from the project's folder on, with slashes
    text: bytes
    tree: ast.Module


def sources(root: Path, run: RunInfo) -> list[Source]:
    """The script first. Files that are too large, no plain UTF-8, behind a link or outside of the project are left."""
    places = starts(run)
    found: dict[Path, Source] = {}
    while places and len(found) < MOST_FILES:
        place = places.pop(0)
        source = read(root, place) if place not in found else None
        if source is not None:
            found[place] = source
            places += imported(source, place, Path(run.cwd))
    return list(found.values())


def starts(run: RunInfo) -> list[Path]:
    """Where the script, or the module that `python -m` runs, may be."""
    here = Path(run.cwd)
    if run.command[:1] == ["-m"] and len(run.command) > 1:
        module = here.joinpath(*run.command[1].split("."))
        return [module.with_suffix(".py"), module / "__main__.py"]
    return [here / run.command[0]] if run.command else []


def read(root: Path, place: Path) -> Source | None:
    try:
        path = place.absolute().relative_to(root.absolute()).as_posix()
        file = own_file(root, path)
        if file.stat().st_size > MOST_BYTES:
            return None
        text = file.read_bytes()
        text.decode()
        # Columns and lines of the tree must be those of the bytes.
        if tokenize.detect_encoding(io.BytesIO(text).readline)[0] != "utf-8" or re.search(rb"\r(?!\n)|\f", text):
            return None
        return Source(path, text, ast.parse(text))
    except (QrprofError, OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def imported(source: Source, place: Path, cwd: Path) -> Iterator[Path]:
    """Where the modules that a file imports would lie, if they are of the project."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            folders = [place.parent, cwd]
        elif isinstance(node, ast.ImportFrom):
            module = f"{node.module}." if node.module else ""
            names = [f"{module}{alias.name}" for alias in node.names] + ([node.module] if node.module else [])
            folders = [place.parents[node.level - 1]] if 0 < node.level <= len(place.parents) else [place.parent, cwd]
        else:
            continue
        for name in names:
            for folder in folders:
                at = folder.joinpath(*name.split("."))
                yield from (at.with_suffix(".py"), at / "__init__.py")


def names_of(tree: ast.Module) -> dict[str, str]:
    """What the names mean that a file imports and binds nowhere else: "DataLoader" -> "torch.utils.data.DataLoader"."""
    meant: dict[str, str] = {}
    bound: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                meant[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            meant |= {
                alias.asname or alias.name: f"{'.' * node.level}{node.module or ''}.{alias.name}"
                for alias in node.names
            }
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.append(node.id)
        elif isinstance(node, ast.arg):
            bound.append(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.append(node.name)
    return {name: what for name, what in meant.items() if name not in bound}


def dotted(node: ast.expr, names: dict[str, str]) -> str:
    """ "torch.optim.AdamW" of `optim.AdamW`; "" of what is no imported name."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute):
        within = dotted(node.value, names)
        return f"{within}.{node.attr}" if within else ""
    return ""
