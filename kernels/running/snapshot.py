"""What a step leaves, to be kept, compared and restored: parameters, gradients, optimizer state, random generators."""

import hashlib
import random
import sys
from collections.abc import Sequence
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


def taken(optimizer: torch.optim.Optimizer, gradients: Sequence[Tensor | None]) -> Snapshot:
    """Of an optimizer after its step; `gradients` are those before it."""
    parameters = parameters_of(optimizer)
    return {
        "parameters": [p.detach() for p in parameters],
        "gradients": list(gradients),
        "states": [state_of(optimizer, p) for p in parameters],
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
    found = [(distance(one, other), norm(other)) for one, other in zip(own, stock, strict=True)]
    return max((off / size if size else float("inf") for off, size in found if off), default=0.0)


def alike(own: Sequence[Tensor], stock: Sequence[Tensor]) -> bool:
    return [t.shape for t in own] == [t.shape for t in stock]


def distance(one: Tensor | None, other: Tensor | None) -> float:
    if one is None or other is None:
        return norm(one if other is None else other)
    if not one.is_floating_point():
        return 0.0 if torch.equal(one.cpu(), other.cpu()) else float("inf")
    return norm(one.detach().double() - other.to(one.device).double())


def norm(x: Tensor | None) -> float:
    return 0.0 if x is None else float(torch.linalg.vector_norm(x.detach().double()))


@torch.no_grad()
def restore(optimizer: torch.optim.Optimizer, snapshot: Snapshot) -> None:
    """Put parameters, state and generators where the snapshot has them, in place: graphs may know their memory.

    A state of another form stays as it is; `apart` tells of it.
    """
    for i, p in enumerate(parameters_of(optimizer)):
        p.copy_(snapshot["parameters"][i])
        own, stock = state_of(optimizer, p), snapshot["states"][i]
        if alike(own, stock):
            for mine, theirs in zip(own, stock, strict=True):
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
