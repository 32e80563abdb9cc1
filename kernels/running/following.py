"""A run watched for what it computes: losses, gradients and updates, step by step.

The leader, a stock run, leaves a snapshot after each of its first steps. A follower goes back to it after each of them:
its next step begins where the leader's did, and what comes out of the two can be compared.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qrprof.kernels.running import snapshot
from qrprof.kernels.running.snapshot import distance, norm, parameters_of
from qrprof.kernels.running.training import ending, guarded, machine, peak, swaps
from qrprof.kernels.running.watched import Apart, Parameter, Step, Trained
from qrprof.profiler.recording.clock import uses_device

SPARE = 2  # times a snapshot's size that has to be free on the disk


@dataclass(frozen=True)
class Task:
    file: Path  # of the record
    folder: Path  # of the snapshots
    leads: bool
    forced: int  # snapshots, less the first: steps that begin alike
    steps: int  # in all


@dataclass
class Before:
    """An optimizer as its step begins."""

    weights: list[Tensor]
    gradients: list[Tensor | None]


@dataclass
class Seen:
    names: list[tuple[str, ...]] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    modules: list[list[torch.nn.Module]] = field(default_factory=list)  # by optimizer: those that hold its parameters
    steps: list[Step] = field(default_factory=list)
    losses: list[Tensor] = field(default_factory=list)  # of the step under way
    before: Before | None = None
    began_ns: int = field(default_factory=time.perf_counter_ns)  # of the step under way


def install(settings: dict[str, Any]) -> None:
    """`settings`: file, folder, leads, forced, steps; as Task."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    task = Task(
        Path(settings["file"]), Path(settings["folder"]), settings["leads"], settings["forced"], settings["steps"]
    )
    seen, pid = Seen(), os.getpid()

    def record() -> Trained:
        return Trained(tuple(seen.names), tuple(seen.steps), swaps(), peak(), machine())

    end = ending(task.file, record)

    def within(work: Callable[[Any], None]) -> Callable[..., None]:
        def hook(optimizer: Any, args: Any, kwargs: Any) -> None:
            if os.getpid() == pid:
                guarded(task.file, lambda: work(optimizer))

        return hook

    def after(optimizer: Any) -> None:
        stepped(optimizer, seen, task)
        if len(seen.steps) >= task.steps:
            end()

    register_optimizer_step_pre_hook(within(lambda optimizer: begins(optimizer, seen)))
    register_optimizer_step_post_hook(within(after))
    watch_losses(seen.losses)


def watch_losses(losses: list[Tensor]) -> None:
    """Keep the numbers that backward is called on."""
    stock = torch.autograd.backward

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        each = [tensors] if isinstance(tensors, Tensor) else tensors
        numbers = (
            one for one in each if isinstance(one, Tensor) and one.numel() == 1
        )  # it may be an edge of the graph
        losses.extend(one.detach().clone() for one in numbers)
        stock(tensors, *args, **kwargs)

    torch.autograd.backward = backward


@torch.no_grad()
def begins(optimizer: Any, seen: Seen) -> None:
    parameters = parameters_of(optimizer)
    weights = [p.detach().clone() for p in parameters]
    seen.before = Before(weights, [None if p.grad is None else dense(p.grad) for p in parameters])


def dense(gradient: Tensor) -> Tensor:
    """A copy, of a sparse one too: an embedding may have such."""
    return gradient.detach().clone() if gradient.layout is torch.strided else gradient.detach().to_dense()


@torch.no_grad()
def stepped(optimizer: Any, seen: Seen, task: Task) -> None:
    """Record the step that has ended, leave its snapshot, or go back to the leader's."""
    before = seen.before
    if before is None:  # a step within a step
        return
    seen.before = None
    if uses_device():
        torch.cuda.synchronize()
    ended_ns, number, which = time.perf_counter_ns(), len(seen.steps), index_of(optimizer, seen)
    modules = seen.modules[which]
    own = snapshot.taken(optimizer, before.gradients, modules)
    stock = None if task.leads else snapshot_of(number, own, task)
    apart = snapshot.apart(own, stock) if stock and number else None  # the first step began wherever it did
    seen.steps.append(
        Step(
            optimizer=which,
            loss=sum(float(loss) for loss in seen.losses) if seen.losses else None,
            ns=ended_ns - seen.began_ns,
            random=snapshot.random_hash(),
            hits=swaps().by_name,
            parameters=measured(parameters_of(optimizer), before, apart),
        )
    )
    seen.losses.clear()
    if stock:
        snapshot.restore(optimizer, stock, modules)
    elif task.leads:
        leave_snapshot(number, own, task)
    seen.began_ns = time.perf_counter_ns()


def snapshot_of(number: int, own: snapshot.Snapshot, task: Task) -> snapshot.Snapshot | None:
    """What the leader left after its step `number`, if it is of the same parameters."""
    file = file_of(number, task)
    stock = snapshot.load(file) if file.exists() else None
    return stock if stock and snapshot.alike(own["parameters"], stock["parameters"]) else None


def leave_snapshot(number: int, own: snapshot.Snapshot, task: Task) -> None:
    """None after one for which there was no room: what follows would not begin alike."""
    before = number == 0 or file_of(number - 1, task).exists()
    if before and number <= task.forced and room_for(own, task.folder):
        snapshot.save(file_of(number, task), own)


def file_of(number: int, task: Task) -> Path:
    return task.folder / f"{number}.pt"


def room_for(own: snapshot.Snapshot, folder: Path) -> bool:
    tensors: Iterable[Tensor | None] = chain(own["parameters"], own["gradients"], own["buffers"], *own["states"])
    size = sum(t.numel() * t.element_size() for t in tensors if t is not None)
    return shutil.disk_usage(folder).free > SPARE * size


def measured(parameters: list[Tensor], before: Before, apart: list[Apart] | None) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(
            dtype=None if gradient is None else str(gradient.dtype).removeprefix("torch."),
            gradient=norm(gradient),
            update=distance(p, weight),
            weight=norm(weight),
            apart=apart[i] if apart else None,
        )
        for i, (p, weight, gradient) in enumerate(zip(parameters, before.weights, before.gradients, strict=True))
    )


# --- modules and names


def index_of(optimizer: Any, seen: Seen) -> int:
    for i, known in enumerate(seen.optimizers):
        if known is optimizer:
            return i
    seen.optimizers.append(optimizer)
    parameters = parameters_of(optimizer)
    seen.modules.append(holders(parameters))
    seen.names.append(names_of(parameters, seen.modules[-1]))
    return len(seen.optimizers) - 1


def holders(parameters: Iterable[Tensor]) -> list[torch.nn.Module]:
    """The outermost modules that hold these parameters, in their order."""
    import gc

    # By type: to ask a proxy for its class may raise, and may import what it stands for.
    modules = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module)]
    inner = {id(child) for module in modules for child in module.children()}
    places = {id(p): i for i, p in enumerate(parameters)}
    found = [
        (min(held), number, module)
        for number, module in enumerate(modules)
        if id(module) not in inner and (held := [places[id(p)] for p in module.parameters() if id(p) in places])
    ]
    return [module for *_, module in sorted(found, key=lambda one: one[:2])]


def names_of(parameters: Iterable[Tensor], modules: Iterable[torch.nn.Module]) -> tuple[str, ...]:
    """As these modules name them; a number where none does."""
    known = {id(p): name for module in modules for name, p in module.named_parameters()}
    return tuple(known.get(id(p), f"parameter {i}") for i, p in enumerate(parameters))
