"""One candidate file out of the included QR kernels for GPUs: the text of all that a call reaches, by module.

A candidate may import little more than torch and Triton (`planner/gate/witness.py`). So names of other modules become
names of the file, with the module's put before them where two modules have the same; what the file must do in another
way than the package (reading the CUDA source, streams, graphs) is given as replacements.
"""

import ast
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from qrprof.kernels.qr.source import source as source_of

PACKAGE: Final = "qrprof.kernels"
SIMPLE: Final = (ast.Assign, ast.AnnAssign)
Kinds = type[ast.stmt] | tuple[type[ast.stmt], ...]
Place = tuple[str, str]  # a module's name and one of its own
REPLACED: Final[Mapping[Place, str]] = {  # by what a starting file has for it
    ("qr.configs", "DEFAULT"): "CONFIG",
    ("qr.blocked", "config_of"): "config_of",
    ("qr.source", "source"): "source",
    ("qr.built", "built"): "built",
    ("qr.launch", "launcher"): "launcher",
    ("qr.ahead", "side_stream"): "side_stream",
}


@dataclass(frozen=True)
class Definition:
    """A statement at the top level of a module, with the comments above it."""

    node: ast.stmt
    text: str
    line: int  # the text's first


@dataclass(frozen=True)
class Module:
    name: str  # "qr.blocked"
    about: str  # the first line of its docstring
    own: Mapping[str, Definition]
    taken: Mapping[str, Place]  # names from modules of the package; ("qr.rows", "") for the module itself
    foreign: Mapping[str, tuple[str, str]]  # other imported names: a module, and what is imported of it or how


@cache
def module(name: str) -> Module:
    text = files(PACKAGE).joinpath(*f"{name.replace('.', '/')}.py".split("/")).read_text(encoding="utf-8")
    return parsed(name, text)


def parsed(name: str, text: str) -> Module:
    tree, lines = ast.parse(text), text.splitlines()
    own: dict[str, Definition] = {}
    taken: dict[str, Place] = {}
    foreign: dict[str, tuple[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported(node, taken, foreign)
            continue
        for bound in names_bound(node):
            own[bound] = definition(node, lines)
    return Module(name, (ast.get_docstring(tree) or "").partition("\n")[0], own, taken, foreign)


def imported(node: ast.Import | ast.ImportFrom, taken: dict[str, Place], foreign: dict[str, tuple[str, str]]) -> None:
    source = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
        bound = alias.asname or alias.name.partition(".")[0]
        if not source.startswith(PACKAGE):
            written = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
            foreign[bound] = (source, written) if source else (alias.name, f"import {written}")
        elif source == f"{PACKAGE}.qr":
            taken[bound] = (f"qr.{alias.name}", "")
        else:
            taken[bound] = (source.removeprefix(f"{PACKAGE}."), alias.name)


def names_bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def definition(node: ast.stmt, lines: list[str]) -> Definition:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
    first = min(node.lineno, *(one.lineno for one in decorators)) if decorators else node.lineno
    while first > 1 and lines[first - 2].startswith("#"):
        first -= 1
    return Definition(node, "\n".join(lines[first - 1 : node.end_lineno]), first)


# --- what is reached


@dataclass(frozen=True)
class Use:
    """A name in a text, and what it stands for."""

    line: int
    first: int  # bytes
    last: int
    of: Place


def uses(of: Module, found: Definition, replaced: Mapping[Place, Place]) -> Iterator[Use]:
    """Of names of the package; those that a function binds itself are not."""
    local = bound_in(found.node) if isinstance(found.node, ast.FunctionDef) else set()
    for node in ast.walk(found.node):
        place: Place | None = None
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name, whole = of.taken.get(node.value.id, ("", "-"))
            place = (name, node.attr) if not whole and node.value.id not in local else None
        elif isinstance(node, ast.Name) and node.id not in local:
            place = (of.name, node.id) if node.id in of.own else of.taken.get(node.id)
        if place is not None and place[1]:
            assert isinstance(node, ast.Name | ast.Attribute)
            assert node.end_col_offset is not None
            yield Use(node.lineno, node.col_offset, node.end_col_offset, replaced.get(place, place))


def bound_in(function: ast.FunctionDef) -> set[str]:
    names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names | {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}


@dataclass(frozen=True)
class Bundle:
    """Modules in the order in which they are needed, and what of them is reached from some names of the last one."""

    modules: tuple[Module, ...]
    reached: frozenset[Place]
    replaced: Mapping[Place, Place]

    def name(self, place: Place) -> str:
        """In the file: a module's name is put before what another module has, too."""
        others = {module for module, name in self.reached if name == place[1]} - {place[0]}
        if not others or place[0] == self.modules[-1].name:
            return place[1]
        short = place[0].rpartition(".")[2]
        return f"{short.upper()}_{place[1]}" if place[1].isupper() else f"{short}_{place[1]}"

    def texts(self, of: Module, kinds: Kinds = ast.stmt) -> str:
        """Of what is reached, with the file's names."""
        found = {one.line: one for name, one in of.own.items() if (of.name, name) in self.reached}
        text, last = "", None
        for one in sorted(found.values(), key=lambda one: one.line):
            if isinstance(one.node, kinds):
                text += ("" if last is None else space(last, one)) + self.renamed(of, one)
                last = one
        return text

    def renamed(self, of: Module, found: Definition) -> str:
        lines = [line.encode() for line in found.text.split("\n")]
        for use in sorted(uses(of, found, self.replaced), key=lambda one: (one.line, one.first), reverse=True):
            line = lines[use.line - found.line]
            lines[use.line - found.line] = line[: use.first] + self.name(use.of).encode() + line[use.last :]
        text = b"\n".join(lines).decode()
        if isinstance(found.node, ast.FunctionDef | ast.ClassDef):
            name = found.node.name
            text = re.sub(rf"\b(def|class) {name}\b", rf"\1 {self.name((of.name, name))}", text, count=1)
        return text

    def imports(self) -> str:
        """Statements, one a module, the standard library's first."""
        names: dict[str, set[str]] = {}
        for source, name in {found for of in self.modules for found in self.foreign(of)}:
            names.setdefault(source, set()).add(name)
        order = sorted(names, key=lambda source: (source.partition(".")[0] not in sys.stdlib_module_names, source))
        plain = [statement for source in order for statement in sorted(names[source]) if statement.startswith("import")]
        rest = {source: sorted(one for one in names[source] if not one.startswith("import")) for source in order}
        return "\n".join([*plain, *(f"from {source} import {', '.join(own)}" for source, own in rest.items() if own)])

    def foreign(self, of: Module) -> Iterator[tuple[str, str]]:
        for name, found in of.own.items():
            if (of.name, name) in self.reached:
                used = {node.id for node in ast.walk(found.node) if isinstance(node, ast.Name)}
                yield from (of.foreign[one] for one in used & of.foreign.keys())


def bundled(main: Module, roots: Sequence[str], replaced: Mapping[Place, Place]) -> Bundle:
    waiting = [(main.name, root) for root in roots]
    reached: set[Place] = set()
    while waiting:
        place = waiting.pop()
        if place not in reached:
            reached.add(place)
            of = main if place[0] == main.name else module(place[0])
            waiting += [use.of for use in uses(of, of.own[place[1]], replaced)]
    return Bundle((*needed(main, {name for name, _ in reached}), main), frozenset(reached), replaced)


def needed(main: Module, names: Collection[str]) -> list[Module]:
    """The modules of these names, each after those that it takes from."""
    found: dict[str, Module] = {}

    def visit(of: Module) -> None:
        for name, _ in of.taken.values():
            if name not in found and name in names:
                visit(module(name))
                found[name] = module(name)

    visit(main)
    return list(found.values())


# --- the file


def bundle(name: str, candidate: str) -> str:
    """A file of `starting` with all that it takes from the package; `candidate` is the function of that name."""
    text = files("qrprof.planner.optimize").joinpath("starting", f"{name}.py").read_text(encoding="utf-8")
    text = text.replace(f"def {candidate}(", "def candidate(").replace(
        'ROWS_CU: Final = ""', f"ROWS_CU: Final = {cuda()}"
    )
    main = parsed("main", text)
    settings = [own for own, found in main.own.items() if isinstance(found.node, ast.Assign)]
    found = bundled(main, [*settings, "candidate"], {place: ("main", now) for place, now in REPLACED.items()})
    docstring = ast.get_docstring(ast.parse(text), clean=False)
    sections = [
        f'"""{docstring}"""\n\n{found.imports()}\n\n{found.texts(main, ast.Assign)}',
        *(f"# --- {of.about}\n\n{found.texts(of)}" for of in found.modules[:-1]),
        f"# --- The candidate.\n\n{found.texts(main, (ast.AnnAssign, ast.FunctionDef))}",
    ]
    return "\n\n\n".join(sections) + "\n"


def cuda() -> str:
    """The leaf's CUDA C++ as a literal."""
    return f'r"""\n{source_of("rows.cu")}"""'


def space(before: Definition, after: Definition) -> str:
    """Between two statements: as between them in their module, where both are simple."""
    if not isinstance(before.node, SIMPLE) or not isinstance(after.node, SIMPLE):
        return "\n\n\n"
    return "\n" if before.node.end_lineno == after.line - 1 else "\n\n"
