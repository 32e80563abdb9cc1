"""`.item()` of a loss in every step, only to add it up or to list it: the device is waited for once, after the loop.

A patch is made only where nothing else in the loop sees what is gathered, and where the same numbers come out: sums are
made in float64, as Python makes them.
"""

import ast
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Final

from qrprof.planner.patches.calls import at
from qrprof.planner.patches.edits import Edit, begin_of, edited, end_of, same_place
from qrprof.planner.patches.patch import Patch, made
from qrprof.planner.patches.sources import Source

Scope = ast.Module | ast.FunctionDef
Loop = ast.For | ast.While
HIDDEN: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)  # may run at any time


@dataclass(frozen=True)
class Gathered:
    """`total += loss.item()` or `losses.append(loss.item())`, in `loop` and in no loop in it."""

    loop: Loop
    before: Sequence[ast.stmt]  # the loop, in its block
    call: ast.Call  # of item()
    name: str  # "total", "losses"
    loss: str
    listed: bool

    @property
    def inside(self) -> str:
        """What takes the place of the call."""
        return f"{self.loss}.detach().clone()" if self.listed else f"{self.loss}.detach().double()"

    @property
    def after(self) -> str:
        """What follows the loop."""
        return f"{self.name} = " + (f"[float(one) for one in {self.name}]" if self.listed else f"float({self.name})")


def waits(source: Source) -> Iterator[Patch]:
    for scope in ast.walk(source.tree):
        if not isinstance(scope, ast.Module | ast.FunctionDef):
            continue
        for found in gatherings(scope.body):
            after = moved(source, found) if provable(found, scope) else None
            if after is not None:
                title = f"{found.loss}.item() at {at(source, found.call)}: once, after the loop"
                why = f"Each pass of the loop waits for the device, only to gather {found.loss} in {found.name}."
                yield made(source.path, source.text, after, title, why)


def gatherings(
    block: Sequence[ast.stmt], loop: Loop | None = None, before: Sequence[ast.stmt] = ()
) -> Iterator[Gathered]:
    """In loops of one scope; not under `try`, whose handlers could see what is gathered."""
    for i, statement in enumerate(block):
        if isinstance(statement, ast.For | ast.While):
            yield from gatherings(statement.body, statement, block[:i])
        elif isinstance(statement, ast.If):
            yield from gatherings(statement.body, loop, before)
            yield from gatherings(statement.orelse, loop, before)
        elif isinstance(statement, ast.With):
            yield from gatherings(statement.body, loop, before)
        elif loop is not None and (found := gathered(statement, loop, before)):
            yield found


def gathered(statement: ast.stmt, loop: Loop, before: Sequence[ast.stmt]) -> Gathered | None:
    match statement:
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value):
            listed = False
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value])):
            listed = True
        case _:
            return None
    match value:
        case ast.BinOp(left=left, op=ast.Mult(), right=right) if counts(right) and not listed:
            value = left
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=loss), attr="item"), args=[], keywords=[]):
            return Gathered(loop, before, value, name, loss, listed)
    return None


def counts(node: ast.expr) -> bool:
    """Whether it is a number of Python's: 32, len(x), x.size(0)."""
    match node:
        case ast.Constant(value=int() | float()):
            return True
        case ast.Call(func=ast.Name(id="len")) | ast.Call(func=ast.Attribute(attr="size"), args=[ast.Constant()]):
            return True
    return False


# --- proof


def provable(found: Gathered, scope: Scope) -> bool:
    """Whether `loss` is a tensor, and what is gathered is a number or list of this loop's that nothing sees in it."""
    earlier = [one for one in occurrences(found.name, scope) if begin_of(one) < end_of(found.loop)]
    hidden = [one for one in ast.walk(scope) if isinstance(one, HIDDEN) and one is not scope]
    losses = occurrences(found.loss, found.loop)
    return (
        len(earlier) == 2  # where it begins, and where the loop adds to it
        and any(begins(statement, found) for statement in found.before)
        and not any(occurrences(found.name, one) for one in hidden)
        and not any(isinstance(one, ast.Global | ast.Nonlocal) and found.name in one.names for one in ast.walk(scope))
        and sum(isinstance(one.ctx, ast.Store) for one in losses) == 1
        and any(backward(one, found.loss) for one in ast.walk(found.loop))
    )


def occurrences(name: str, within: ast.AST) -> list[ast.Name]:
    return [node for node in ast.walk(within) if isinstance(node, ast.Name) and node.id == name]


def begins(statement: ast.stmt, found: Gathered) -> bool:
    """Whether it is `total = 0.0`, `losses = []`, or one of several such at once."""
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            pairs = list(zip(names, values, strict=False))
        case ast.Assign(targets=[name], value=value) | ast.AnnAssign(target=name, value=ast.expr() as value):
            pairs = [(name, value)]
        case _:
            return False
    return any(isinstance(name, ast.Name) and name.id == found.name and empty(value, found) for name, value in pairs)


def empty(value: ast.expr, found: Gathered) -> bool:
    match value:
        case ast.List(elts=[]):
            return found.listed
        case ast.Constant(value=int() | float()):
            return not found.listed
    return False


def backward(node: ast.AST, loss: str) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="backward")):
            return name == loss
    return False


# --- the change


def moved(source: Source, found: Gathered) -> bytes | None:
    loop, lines = found.loop, source.text.splitlines(keepends=True)
    indent = lines[loop.lineno - 1][: loop.col_offset].decode()
    end = "\r\n" if lines[0].endswith(b"\r\n") else "\n"
    last = lines[loop.end_lineno - 1] if loop.end_lineno else b""
    line = f"{indent}{found.after}"
    below = ((loop.end_lineno or 0) + 1, 0)
    edits = [
        Edit(begin_of(found.call), end_of(found.call), found.inside),
        Edit(below, below, f"{line}{end}" if last.endswith(b"\n") else f"{end}{line}"),
    ]
    return edited(source, edits, Moved(found).visit(deepcopy(source.tree)))


class Moved(ast.NodeTransformer):
    """The same in a tree."""

    def __init__(self, found: Gathered) -> None:
        self.found = found

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if same_place(node, self.found.call):
            return ast.parse(self.found.inside, mode="eval").body
        return self.generic_visit(node)

    def visit_For(self, node: ast.For) -> list[ast.AST]:
        return self.loop(node)

    def visit_While(self, node: ast.While) -> list[ast.AST]:
        return self.loop(node)

    def loop(self, node: Loop) -> list[ast.AST]:
        after = ast.parse(self.found.after).body if same_place(node, self.found.loop) else []
        return [self.generic_visit(node), *after]
