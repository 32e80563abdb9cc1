"""What a step leaves, to be kept, compared, put back: parameters, gradients, optimizer state, buffers, random state."""

import hashlib
import math
import random
import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from qrprof.kernels.running.watched import Apart
from qrprof.profiler.recording.clock import uses_device
from qrprof.profiler.store import replacing

Snapshot = dict[str, Any]


def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def state_of(optimizer: torch.optim.Optimizer, p: Tensor) -> list[Tensor]:
    """All tensors of a parameter's optimizer state, in an order of their own."""
    state = optimizer.state.get(p, {})
    named = {key: state[key] for key in sorted(state, key=str)}
    return [leaf for leaf in pytree.tree_leaves(named) if isinstance(leaf, Tensor)]


def buffers_of(modules: Iterable[torch.nn.Module]) -> list[Tensor]:
    """Those that hold numbers: such as the running means of a batch norm."""
    found = chain.from_iterable(module.buffers() for module in modules)
    return [buffer for buffer in found if not buffer.is_meta and buffer.layout is torch.strided]


def taken(
    optimizer: torch.optim.Optimizer, gradients: Sequence[Tensor | None], modules: Iterable[torch.nn.Module] = ()
) -> Snapshot:
    """Of an optimizer after its step; `gradients` are those before it, `modules` those that hold its parameters."""
    parameters = parameters_of(optimizer)
    return {
        "parameters": [p.detach() for p in parameters],
        "gradients": list(gradients),
        "states": [state_of(optimizer, p) for p in parameters],
        "buffers": buffers_of(modules),
        "random": generators(),
    }


def save(path: Path, snapshot: Snapshot) -> None:
    with replacing(path) as temporary:
        torch.save(snapshot, temporary)


def load(path: Path) -> Snapshot:
    """On the CPU, as it was saved."""
    snapshot: Snapshot = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    return snapshot


def apart(own: Snapshot, stock: Snapshot) -> list[Apart]:
    """By parameter, how far this process's step left it from the stock one's."""
    return [
        Apart(
            gradient=distance(gradient, stock["gradients"][i]),
            update=distance(own["parameters"][i], stock["parameters"][i]),
            state=furthest(own["states"][i], stock["states"][i]),
        )
        for i, gradient in enumerate(own["gradients"])
    ]


def furthest(own: Sequence[Tensor], stock: Sequence[Tensor]) -> float:
    """The largest distance of two tensors of a state, as a fraction of the stock one; infinite for other forms."""
    if not alike(own, stock):
        return float("inf")
    there = (other.to(one.device) for one, other in zip(own, stock, strict=True))  # one at a time: states can be large
    found = [(distance(one, other), norm(other)) for one, other in zip(own, there, strict=True)]
    fractions = (off / size if size else math.inf for off, size in found if off)
    return max(fractions, key=lambda off: math.inf if math.isnan(off) else off, default=0.0)


def alike(own: Sequence[Tensor], stock: Sequence[Tensor]) -> bool:
    return [t.shape for t in own] == [t.shape for t in stock]


def distance(one: Tensor | None, other: Tensor | None) -> float:
    """Of numbers; what is not finite in the same way in both is nothing apart."""
    if one is None or other is None:
        return norm(one if other is None else other)
    if not (one.is_floating_point() or one.is_complex()):
        return 0.0 if torch.equal(one.cpu(), other.cpu()) else math.inf
    mine, theirs = wide(one), wide(other.to(one.device))
    same = (mine == theirs) | (mine.isnan() & theirs.isnan())
    return norm((mine - theirs).masked_fill(same, 0))


def norm(x: Tensor | None) -> float:
    return 0.0 if x is None else float(torch.linalg.vector_norm(wide(x)))


def wide(x: Tensor) -> Tensor:
    return x.detach().to(torch.complex128 if x.is_complex() else torch.float64)


@torch.no_grad()
def restore(optimizer: torch.optim.Optimizer, snapshot: Snapshot, modules: Iterable[torch.nn.Module] = ()) -> None:
    """Put all where the snapshot has it, in place: graphs may know their memory.

    A state of another form stays as it is, which `apart` tells of; so do buffers.
    """
    for i, p in enumerate(parameters_of(optimizer)):
        p.copy_(snapshot["parameters"][i])
        own, stock = state_of(optimizer, p), snapshot["states"][i]
        if alike(own, stock):
            for mine, theirs in zip(own, stock, strict=True):
                mine.copy_(theirs)
    buffers = buffers_of(modules)
    if alike(buffers, snapshot["buffers"]):
        for mine, theirs in zip(buffers, snapshot["buffers"], strict=True):
            if not torch.equal(mine.cpu(), theirs):  # constants may be views that cannot be written
                mine.copy_(theirs)
    set_generators(snapshot["random"])


# --- random generators


def generators() -> dict[str, Any]:
    found: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if uses_device():
        found["cuda"] = torch.cuda.get_rng_state()
    if numpy := sys.modules.get("numpy"):
        name, keys, *rest = numpy.random.get_state()
        found["numpy"] = (name, keys.tolist(), *rest)
    return found


def set_generators(kept: dict[str, Any]) -> None:
    torch.set_rng_state(kept["torch"])
    random.setstate(kept["python"])
    if "cuda" in kept and uses_device():
        torch.cuda.set_rng_state(kept["cuda"])
    if (numpy := sys.modules.get("numpy")) and "numpy" in kept:
        numpy.random.set_state(kept["numpy"])


def random_hash() -> str:
    found = generators()
    digest = hashlib.sha256(repr((found["python"], found.get("numpy"))).encode())
    for name in ("torch", "cuda"):
        digest.update(found[name].numpy().tobytes() if name in found else b"")
    return digest.hexdigest()
