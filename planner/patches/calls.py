"""Arguments that a call lacks: workers of a loader, fused= of an optimizer."""

import ast
import multiprocessing
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from qrprof.planner.patches.edits import with_keyword
from qrprof.planner.patches.patch import Patch, made
from qrprof.planner.patches.sources import Source, dotted, names_of

WORKERS: Final = 4
LOADERS: Final = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
BEFORE_WORKERS: Final = 5  # arguments of a loader
ITERABLE: Final = "IterableDataset"

Reads = Literal["by index", "in one stream", ""]  # "": not known


def workers(source: Source, project: Sequence[Source]) -> Iterator[Patch]:
    """For each loader that reads in the program's own process; not of a stream, nor where workers would not start."""
    names = names_of(source.tree)
    for call in calls(source.tree):
        if dotted(call.func, names) not in LOADERS or not plain(call) or len(call.args) > BEFORE_WORKERS:
            continue
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        if not zero(given.get("num_workers")) or not startable(source, project[0]):
            continue
        reads = reading(call.args[0] if call.args else given.get("dataset"), source, project)
        after = with_keyword(source, call, "num_workers", WORKERS) if reads != "in one stream" else None
        if after is not None:
            unknown = "" if reads else " Its dataset must be read by index: each worker would read all of a stream."
            why = (
                f"The step waits for its data, which this process reads. {WORKERS} workers read ahead beside the step."
                f" Items must be made on the CPU; what they draw at random is drawn in each worker.{unknown}"
            )
            yield made(source.path, source.text, after, f"{WORKERS} workers for the loader at {at(source, call)}", why)


def fused(source: Source, optimizer: str) -> Iterator[Patch]:
    """For each call that makes torch.optim's `optimizer` and does not say how it is to update."""
    names = names_of(source.tree)
    for call in calls(source.tree):
        given = {keyword.arg for keyword in call.keywords}
        if dotted(call.func, names) not in meant(optimizer) or not plain(call):
            continue
        if given & {"fused", "foreach", "differentiable"}:
            continue
        if (after := with_keyword(source, call, "fused", True)) is not None:
            title = f"fused {optimizer} at {at(source, call)}"
            why = "One kernel updates many parameters; sums are rounded in another order."
            yield made(source.path, source.text, after, title, why)


def meant(optimizer: str) -> tuple[str, ...]:
    return (f"torch.optim.{optimizer}", f"torch.optim.{optimizer.lower()}.{optimizer}")


def calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def at(source: Source, node: ast.expr | ast.stmt) -> str:
    return f"{source.path}:{node.lineno}"


def plain(call: ast.Call) -> bool:
    """Whether all arguments are written out."""
    return all(keyword.arg for keyword in call.keywords) and not any(isinstance(one, ast.Starred) for one in call.args)


def zero(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value == 0)


def startable(source: Source, script: Source) -> bool:
    """Whether workers can start: by a fork, or in a script that does nothing when they import it."""
    guarded = (ast.unparse(node.test) for node in script.tree.body if isinstance(node, ast.If))
    return multiprocessing.get_all_start_methods()[0] == "fork" or "__name__ == '__main__'" in guarded


# --- the dataset


def reading(dataset: ast.expr | None, source: Source, project: Sequence[Source]) -> Reads:
    """How a loader reads what is given as its dataset."""
    if isinstance(dataset, ast.Name):
        dataset = only_value(dataset.id, source.tree)
    if not isinstance(dataset, ast.Call):
        return ""
    name = dotted(dataset.func, names_of(source.tree)) or (
        dataset.func.id if isinstance(dataset.func, ast.Name) else ""
    )
    if name.startswith("torch."):
        return "by index" if name.endswith((".TensorDataset", ".Subset")) else ""
    found = [
        one
        for other in project
        for one in ast.walk(other.tree)
        if isinstance(one, ast.ClassDef) and one.name == name.rpartition(".")[2]
    ]
    return reading_of(found[0]) if len(found) == 1 else ""


def only_value(name: str, tree: ast.Module) -> ast.expr | None:
    """What is assigned to the name, if that is done once."""
    values = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id == name
    ]
    return values[0] if len(values) == 1 else None


def reading_of(dataset: ast.ClassDef) -> Reads:
    methods = {one.name for one in dataset.body if isinstance(one, ast.FunctionDef)}
    if any(ast.unparse(base).endswith(ITERABLE) for base in dataset.bases) or methods & {"__iter__", "__getitem__"} == {
        "__iter__"
    }:
        return "in one stream"
    return "by index" if "__getitem__" in methods else ""
