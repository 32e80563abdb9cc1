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
from qrprof.kernels.running.snapshot import norm, parameters_of
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
    seen.before = Before(weights, [None if p.grad is None else p.grad.detach().clone() for p in parameters])


@torch.no_grad()
def stepped(optimizer: Any, seen: Seen, task: Task) -> None:
    """Record the step that has ended, leave its snapshot, or go back to the leader's."""
    before = seen.before
    if before is None:  # a step within a step
        return
    seen.before = None
    if uses_device():
        torch.cuda.synchronize()
    ended_ns, number = time.perf_counter_ns(), len(seen.steps)
    file = task.folder / f"{number}.pt"
    stock = None if task.leads or number > task.forced or not file.exists() else snapshot.load(file)
    own = snapshot.taken(optimizer, before.gradients)
    apart = snapshot.apart(own, stock) if stock and number else None  # the first step began wherever it did
    seen.steps.append(
        Step(
            optimizer=index_of(optimizer, seen),
            loss=sum(float(loss) for loss in seen.losses) if seen.losses else None,
            ns=ended_ns - seen.began_ns,
            random=snapshot.random_hash(),
            hits=swaps().hits,
            parameters=measured(parameters_of(optimizer), before, apart),
        )
    )
    seen.losses.clear()
    if stock:
        snapshot.restore(optimizer, stock)
    elif task.leads and number <= task.forced and room_for(own, task.folder):
        snapshot.save(file, own)
    seen.began_ns = time.perf_counter_ns()


def room_for(own: snapshot.Snapshot, folder: Path) -> bool:
    tensors: Iterable[Tensor | None] = chain(own["parameters"], own["gradients"], *own["states"])
    size = sum(t.numel() * t.element_size() for t in tensors if t is not None)
    return shutil.disk_usage(folder).free > SPARE * size


def measured(parameters: list[Tensor], before: Before, apart: list[Apart] | None) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(
            dtype=None if gradient is None else str(gradient.dtype).removeprefix("torch."),
            gradient=norm(gradient),
            update=norm(p.detach().double() - weight.double()),
            weight=norm(weight),
            apart=apart[i] if apart else None,
        )
        for i, (p, weight, gradient) in enumerate(zip(parameters, before.weights, before.gradients, strict=True))
    )


# --- names


def index_of(optimizer: Any, seen: Seen) -> int:
    for i, known in enumerate(seen.optimizers):
        if known is optimizer:
            return i
    seen.optimizers.append(optimizer)
    seen.names.append(names_of(parameters_of(optimizer)))
    return len(seen.optimizers) - 1


def names_of(parameters: list[Tensor]) -> tuple[str, ...]:
    """As the outermost module that holds them names them; a number where none does."""
    import gc

    # By type: to ask a proxy for its class may raise, and may import what it stands for.
    modules = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module)]
    inner = {id(child) for module in modules for child in module.children()}
    known = {id(p): name for module in modules if id(module) not in inner for name, p in module.named_parameters()}
    return tuple(known.get(id(p), f"parameter {i}") for i, p in enumerate(parameters))
