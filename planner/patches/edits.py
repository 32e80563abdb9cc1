"""Changes of a source at places of its tree, proved by the tree of what comes out."""

import ast
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

from qrprof.planner.patches.sources import Source


@dataclass(frozen=True)
class Edit:
    """`text` in place of what lies between two places; the same place twice: an insertion."""

    begin: tuple[int, int]  # line, counted from 1, and column in bytes
    end: tuple[int, int]
    text: str


def edited(source: Source, edits: Sequence[Edit], wanted: ast.Module) -> bytes | None:
    """The new source; None where its tree would not be `wanted`, which has no places."""
    starts = [0]
    for line in source.text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    text = source.text
    for edit in sorted(edits, key=lambda edit: edit.begin, reverse=True):
        begin, end = (starts[line - 1] + column for line, column in (edit.begin, edit.end))
        text = text[:begin] + edit.text.encode() + text[end:]
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    return text if ast.dump(tree) == ast.dump(wanted) else None


def begin_of(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def end_of(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def with_keyword(source: Source, call: ast.Call, name: str, value: bool | int) -> bytes | None:
    """The source with `name=value` in the call, as its last argument or in place of another value."""
    given = next((keyword for keyword in call.keywords if keyword.arg == name), None)
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    wanted = deepcopy(source.tree)
    twin = twin_of(wanted, call)
    if given is not None:
        edit = Edit(begin_of(given.value), end_of(given.value), repr(value))
        next(keyword for keyword in twin.keywords if keyword.arg == name).value = ast.Constant(value)
    elif values:
        last = max(end_of(one) for one in values)
        edit = Edit(last, last, f", {name}={value!r}")
        twin.keywords.append(ast.keyword(name, ast.Constant(value)))
    else:
        return None
    return edited(source, [edit], wanted)


def twin_of(tree: ast.Module, node: ast.Call) -> ast.Call:
    """The same call in a copy of its tree."""
    return next(one for one in ast.walk(tree) if isinstance(one, ast.Call) and same_place(one, node))


def same_place(one: ast.expr | ast.stmt, other: ast.expr | ast.stmt) -> bool:
    return (begin_of(one), end_of(one)) == (begin_of(other), end_of(other))
