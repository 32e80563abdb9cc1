"""What a candidate file says can be varied in it: `TUNABLES`, read and set in its text; nothing is imported or run.

```python
TUNABLES = {"WIDTH": (32, 64, 128), "PRECISION": ("tf32x3", "ieee")}
WIDTH = 64
PRECISION = "ieee"
```
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from qrprof.profiler.errors import Exit, QrprofError

NAME: Final = "TUNABLES"
Assigned = Mapping[str, list[ast.expr | None]]  # None: not by a statement of its own


@dataclass(frozen=True)
class Tunable:
    """`value` is what the file sets now; it need not be one of `choices`."""

    name: str
    value: object
    choices: tuple[object, ...]


def tunables(source: str) -> tuple[Tunable, ...]:
    """In the file's order; none where it declares nothing. Raises QrprofError (exit code 2) where that is not sound."""
    assigned = assignments(source)
    if NAME not in assigned:
        return ()
    declared = literal(NAME, expression(NAME, assigned))
    if not isinstance(declared, dict) or not all(isinstance(choices, tuple) for choices in declared.values()):
        raise unsound("is not a dict of tuples")
    return tuple(tunable(str(name), choices, assigned) for name, choices in declared.items())


def tunable(name: str, choices: tuple[object, ...], assigned: Assigned) -> Tunable:
    value = literal(name, expression(name, assigned))
    try:
        hash((value, *choices))
    except TypeError:
        raise unsound(f"needs the values of {name} to be numbers, texts or tuples of them") from None
    return Tunable(name, value, choices)


def with_settings(source: str, settings: Mapping[str, object]) -> str:
    """The text with other values, every other byte as it was. Raises QrprofError where it does not set one of them."""
    assigned = assignments(source)
    data = source.encode()
    starts = line_starts(data)
    places = []
    for name, value in settings.items():
        node = expression(name, assigned)
        literal(name, node)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = starts[node.lineno - 1] + node.col_offset
        places.append((begin, starts[node.end_lineno - 1] + node.end_col_offset, written(value).encode()))
    for begin, end, text in sorted(places, reverse=True):
        data = data[:begin] + text + data[end:]
    return data.decode()


def written(value: object) -> str:
    """A literal; a dict with a line for each key."""
    if not isinstance(value, dict):
        return repr(value)
    return "{\n" + "".join(f"    {key!r}: {held!r},\n" for key, held in value.items()) + "}"


def assignments(source: str) -> Assigned:
    """The values of names at the top level. Raises QrprofError (exit code 2) where the file does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte, or half of a surrogate pair
        raise QrprofError(f"the candidate file does not parse: {error}", Exit.USAGE) from None
    except (RecursionError, MemoryError):
        raise QrprofError("the candidate file does not parse: it is nested too deeply", Exit.USAGE) from None
    found: dict[str, list[ast.expr | None]] = {}
    for name, value in named(tree):
        found.setdefault(name, []).append(value)
    return found


def named(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                yield from [(name, value)] if value else []
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                pass
            case _:  # with other names, by how much, or in a block
                found = (one for one in ast.walk(node) if isinstance(one, ast.Name))
                yield from ((one.id, None) for one in found if isinstance(one.ctx, ast.Store))


def expression(name: str, assigned: Assigned) -> ast.expr:
    """What the name is set to."""
    if name not in assigned:
        raise unsound(f"names {name}, which the file does not set at its top level")
    if len(assigned[name]) > 1:
        raise unsound(f"needs {name} set once, and the file sets it {len(assigned[name])} times at its top level")
    if (found := assigned[name][0]) is None:
        raise unsound(f"needs {name} set by a statement of its own")
    return found


def literal(name: str, found: ast.expr) -> object:
    try:
        value = ast.literal_eval(found)
        json.dumps(value, allow_nan=False)  # as settings are kept
    except (ValueError, TypeError):  # TypeError: bytes, or a list as a key
        raise unsound(f"needs {name} to be a literal, and it is {ast.unparse(found)}") from None
    return value


def unsound(what: str) -> QrprofError:
    return QrprofError(f"{NAME} of the candidate file {what}", Exit.USAGE)


def line_starts(data: bytes) -> list[int]:
    """Where Python's lines begin, in bytes: they end with \\r, \\n or both, and with nothing else."""
    return [0, *(end.end() for end in re.finditer(rb"\r\n|\r|\n", data))]
