"""What a candidate's text shows before it runs: hints for a person, never a verdict.

An honest kernel may do any of these things, and a hostile one can do them where no reader of text sees it. So the
gate's other stages decide, and each of them runs whatever is found here.
"""

import ast
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from qrprof.planner.gate.records import Finding
from qrprof.planner.gate.witness import ALLOWED

RISKY_IMPORTS: Final = {
    "ctypes": "calls native code by address",
    "cffi": "calls native code by address",
    "subprocess": "starts other programs",
    "multiprocessing": "starts other processes",
    "threading": "may work on after the call has returned",
    "concurrent": "may work on after the call has returned",
    "asyncio": "may work on after the call has returned",
    "socket": "reaches for the network",
    "urllib": "reaches for the network",
    "http": "reaches for the network",
    "requests": "reaches for the network",
    "gc": "can find objects that it was not given",
    "inspect": "can look into its callers",
    "mmap": "maps memory of its own",
    "fcntl": "changes open files",
    "signal": "changes what interrupts the process",
    "importlib": "imports by a name that is not in the text",
    "pickle": "runs code out of data",
    "marshal": "runs code out of data",
    ".": "is another file: a candidate is one",
    "atexit": "works on after the call has returned",
}
RISKY_CALLS: Final = {
    "eval": "runs code out of a string",
    "exec": "runs code out of a string",
    "compile": "runs code out of a string",
    "__import__": "imports by a name that is not in the text",
    "open": "opens a file",
    "globals": "reaches its module by name",
    "os.fork": "starts other processes",
    "os.system": "starts other programs",
    "os.popen": "starts other programs",
    "os.dup2": "changes open files",
    "os.write": "writes to an open file",
    "os.putenv": "changes the environment",
    "os._exit": "ends the process",
    "sys.exit": "ends the process",
    "sys._getframe": "looks into its callers",
    "sys.settrace": "watches its callers",
    "sys.setprofile": "watches its callers",
    "time.sleep": "waits",
    "contextlib.suppress": "swallows errors: its own kernel may never run",
    "torch.load": "reads a file",
    "torch.save": "writes a file",
    "torch.hub.load": "reaches for the network",
    "torch.cuda.Stream": "works on a stream of its own: the caller's must wait for it",
    "torch.cuda.stream": "works on a stream of its own: the caller's must wait for it",
    "torch.Stream": "works on a stream of its own: the caller's must wait for it",
    "torch.cuda.CUDAGraph": "replays a graph: it must read the inputs of each call",
    "torch.cuda.graph": "replays a graph: it must read the inputs of each call",
    "torch.cuda.make_graphed_callables": "replays a graph: it must read the inputs of each call",
}
GLOBAL_SETTINGS: Final = (
    *("torch.set_", "torch.manual_seed", "torch.seed", "torch.random.", "torch.cuda.manual_seed", "torch.cuda.set_"),
    *("torch.use_deterministic_algorithms", "torch.autograd.set_", "torch.backends.", "random.seed", "numpy.random."),
)
LESS_PRECISE: Final = frozenset({"half", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "bf16", "fp16"})
IDENTITIES: Final = frozenset({"data_ptr", "_version", "untyped_storage", "_cdata"})
FRAMES: Final = frozenset({"f_back", "f_locals", "f_globals", "tb_frame", "gi_frame", "__globals__", "__subclasses__"})
TENSOR_HOOKS: Final = frozenset({"__torch_function__", "__torch_dispatch__"})
UNKNOWN_IMPORT: Final = "a candidate may not"
CACHES: Final = frozenset({"functools.cache", "functools.lru_cache"})
GATHERERS: Final = frozenset({"append", "add", "setdefault", "update", "insert", "extend"})
CONTAINERS: Final = frozenset({"dict", "list", "set", "defaultdict", "OrderedDict", "WeakKeyDictionary"})


class Warned(NamedTuple):
    line: int
    text: str  # what the line does, and what may come of it

    def __str__(self) -> str:
        return f"line {self.line} {self.text}"


class Module(NamedTuple):
    """A parsed file: its nodes, what its imported names stand for, and its own containers of module level."""

    nodes: tuple[ast.AST, ...]
    names: Mapping[str, str]  # "F" -> "torch.nn.functional"
    containers: frozenset[str]

    def dotted(self, node: ast.AST) -> str:
        """`torch.cuda.synchronize` for what the text spells so, or by another name; "" for anything else."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return f"{base}.{node.attr}" if base else ""
        return ""

    def imported(self, node: ast.AST) -> bool:
        """Whether a dotted name begins with something that was imported."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self.names


Rule = Callable[[ast.AST, Module], str]


def examine(source: str, op: str = "") -> tuple[Finding, ...]:
    """What is worth a look in a candidate for `op` ("geqrf", "_softmax"), by line; nothing is imported or run.

    Each outcome is PASS: a warning counts neither for nor against the candidate.
    """
    try:
        found = warnings(source, op)
    except (RecursionError, MemoryError):
        found = (Warned(1, "is nested too deeply to be looked at"),)
    return tuple(Finding("static", "PASS", None, str(one), "static") for one in found)


def warnings(source: str, op: str = "") -> tuple[Warned, ...]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte, to older Pythons
        return (Warned(getattr(error, "lineno", None) or 1, f"does not parse: {error.args[0]}"),)
    module = Module(tuple(ast.walk(tree)), imported_names(tree), module_containers(tree))
    found = {
        Warned(getattr(node, "lineno", 1), text)
        for node in module.nodes
        for rule in RULES
        if (text := rule(node, module))
    }
    found |= stock_calls(module, op)
    if not defines(tree, "candidate"):
        found.add(Warned(1, "begins a file that defines no function `candidate`"))
    return tuple(sorted(found))


# --- the file as a whole


def imported_names(tree: ast.AST) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                first = name.name.partition(".")[0]
                names[name.asname or first] = name.name if name.asname else first
        elif isinstance(node, ast.ImportFrom):
            names |= {name.asname or name.name: f"{node.module or ''}.{name.name}" for name in node.names}
    return names


def module_containers(tree: ast.Module) -> frozenset[str]:
    """Names of module level that are bound to a dict, list or set."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and holds(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(found)


def holds(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).rpartition(".")[2] in CONTAINERS
    return isinstance(value, ast.Dict | ast.List | ast.Set)


def defines(tree: ast.Module, name: str) -> bool:
    return any(
        (isinstance(node, ast.FunctionDef) and node.name == name)
        or (isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == name for one in node.targets))
        or (isinstance(node, ast.ImportFrom) and any((one.asname or one.name) == name for one in node.names))
        for node in tree.body
    )


def stock_calls(module: Module, op: str) -> set[Warned]:
    """Calls of torch's function for `op` itself."""
    stock = op.rpartition("::")[2].partition(".")[0]
    names = {stock, stock.lstrip("_"), stock.removeprefix("linalg_"), stock.removeprefix("native_")} - {""}
    found = set()
    for node in module.nodes:
        called = module.dotted(node.func) if isinstance(node, ast.Call) else ""
        if called.startswith("torch.") and names & set(called.split(".")[1:]):
            found.add(Warned(getattr(node, "lineno", 1), f"calls {called}, the op that the candidate is to replace"))
    return found


# --- one node at a time: what it does, or ""


def imports(node: ast.AST, module: Module) -> str:
    if isinstance(node, ast.Import):
        roots = {name.name.partition(".")[0] for name in node.names}
    elif isinstance(node, ast.ImportFrom):
        roots = {"." if node.level else (node.module or "").partition(".")[0]}
    else:
        return ""
    strange = sorted(roots - ALLOWED)
    return "; ".join(f"imports {name}, which {RISKY_IMPORTS.get(name, UNKNOWN_IMPORT)}" for name in strange)


def calls(node: ast.AST, module: Module) -> str:
    if not isinstance(node, ast.Call):
        return ""
    called = module.dotted(node.func)
    if called in RISKY_CALLS:
        return f"calls {called}, which {RISKY_CALLS[called]}"
    if called == "getattr" and len(node.args) > 1 and not isinstance(node.args[1], ast.Constant):
        return "calls getattr with a name that is not in the text"
    return ""


def patches(node: ast.AST, module: Module) -> str:
    """Another module's function or class replaced: a timer, a synchronisation, a check."""
    if isinstance(node, ast.Call) and module.dotted(node.func) in ("setattr", "delattr") and node.args:
        return f"changes {module.dotted(node.args[0])}, which is not its own" if module.imported(node.args[0]) else ""
    attributes = [target for target in assigned(node) if isinstance(target, ast.Attribute) and module.imported(target)]
    spelled = [module.dotted(target) for target in attributes]
    foreign = [one for one in spelled if not one.startswith(GLOBAL_SETTINGS)]
    return f"replaces {foreign[0]}, which is not its own" if foreign else ""


def settings(node: ast.AST, module: Module) -> str:
    spelled = (
        [module.dotted(node.func)] if isinstance(node, ast.Call) else [module.dotted(one) for one in assigned(node)]
    )
    found = [name for name in spelled if name.startswith(GLOBAL_SETTINGS)]
    if any(module.dotted(part) == "os.environ" for target in assigned(node) for part in ast.walk(target)):
        found.append("os.environ")
    return f"changes {found[0]}, which the rest of the program uses too" if found else ""


def assigned(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign | ast.Delete):
        return node.targets
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


def identities(node: ast.AST, module: Module) -> str:
    """Results kept by a tensor's address would be those of what lay there before."""
    called_id = isinstance(node, ast.Call) and module.dotted(node.func) == "id"
    if called_id or (isinstance(node, ast.Attribute) and node.attr in IDENTITIES):
        what = "id" if called_id else getattr(node, "attr", "")
        return f"asks for {what}: a result kept by it would be that of what lay there before"
    return ""


def keeps(node: ast.AST, module: Module) -> str:
    """State between calls: `global`, a cache, or something put into a container of the module."""
    into: list[ast.expr] = []
    if isinstance(node, ast.Global):
        return kept(", ".join(node.names))
    if isinstance(node, ast.FunctionDef):
        made = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
        return kept(f"results of {node.name}") if any(module.dotted(one) in CACHES for one in made) else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in GATHERERS:
        into = [node.func.value]
    into += [target.value for target in assigned(node) if isinstance(target, ast.Subscript)]
    names = [one.id for one in into if isinstance(one, ast.Name) and one.id in module.containers]
    return kept(names[0]) if names else ""


def kept(what: str) -> str:
    return f"keeps {what} between calls: no result may depend on an earlier call"


def falls_back(node: ast.AST, module: Module) -> str:
    """`except` that answers with a library's function, or that says nothing."""
    if not isinstance(node, ast.ExceptHandler):
        return ""
    if all(isinstance(one, ast.Pass) for one in node.body):
        return "swallows an error"
    called = [
        module.dotted(part.func)
        for statement in node.body
        for part in ast.walk(statement)
        if isinstance(part, ast.Call) and module.dotted(part.func).startswith("torch.")
    ]
    return f"answers an error with {called[0]}: its own kernel may never run" if called else ""


def frames(node: ast.AST, module: Module) -> str:
    if isinstance(node, ast.Attribute) and (node.attr in FRAMES or module.dotted(node) == "sys.modules"):
        return f"reads {node.attr}, and so what it was not given"
    return ""


def tensor_classes(node: ast.AST, module: Module) -> str:
    """A tensor of another class can put off its work until someone looks."""
    if isinstance(node, ast.ClassDef) and any(module.dotted(base).endswith("Tensor") for base in node.bases):
        return f"derives {node.name} from a tensor: only plain tensors are taken"
    if isinstance(node, ast.FunctionDef) and node.name in TENSOR_HOOKS:
        return f"defines {node.name}: only plain tensors are taken"
    return ""


def precision(node: ast.AST, module: Module) -> str:
    spelled = node.attr if isinstance(node, ast.Attribute) else ""
    if isinstance(node, ast.keyword) and node.arg == "input_precision" and isinstance(node.value, ast.Constant):
        spelled = "" if node.value.value == "ieee" else str(node.value.value)
    elif isinstance(node, ast.keyword) and node.arg == "allow_tf32":
        spelled = "allow_tf32"
    if spelled in LESS_PRECISE or spelled.startswith(("tf32", "allow_tf32")):
        return f"uses {spelled}: the error is compared with the stock kernel's"
    return ""


RULES: Final[tuple[Rule, ...]] = (
    *(imports, calls, patches, settings, identities, keeps, falls_back, frames, tensor_classes, precision),
)
