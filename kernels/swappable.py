"""Which ops can be swapped: those with a kernel of their own on a device, that only compute a new result."""

from dataclasses import dataclass
from typing import Any, Final

import torch

KEYS: Final = ("CPU", "CUDA")
# A composite has no kernel on a device: what it calls there.
LEAVES: Final = {
    "linear": "addmm",
    "matmul": "bmm",
    "einsum": "bmm",
    "layer_norm": "native_layer_norm",
    "group_norm": "native_group_norm",
    "batch_norm": "native_batch_norm",
    "softmax.int": "_softmax",
    "log_softmax.int": "_log_softmax",
    "cross_entropy_loss": "_log_softmax",
    "nll_loss": "nll_loss_forward",
    "dropout": "native_dropout",
    "qr": "linalg_qr",
    "orgqr": "linalg_householder_product",
    "linalg_eigh": "_linalg_eigh",
    "linalg_svd": "_linalg_svd",
    "linalg_cholesky": "linalg_cholesky_ex",
    "linalg_inv": "linalg_inv_ex",
    "linalg_solve": "_linalg_solve_ex",
}


@dataclass(frozen=True)
class Swappable:
    op: str  # as in the dispatcher, without "aten::"; the leaf where a composite was asked for
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Refusal:
    op: str
    why: str  # a sentence


def swappable(op: str) -> Swappable | Refusal:
    """Whether aten's `op` ("aten::linalg_qr", "softmax.int") can be swapped, and on which dispatch keys.

    Overriding a composite op would sever its backward, so the op that it calls on the device is named instead.
    """
    name = op.removeprefix("aten::").removesuffix(".default")
    found = overload(name)
    if found is None:
        return Refusal(name, f"torch {torch.__version__} has no op aten::{name}.")
    if why := unfit(found):
        return Refusal(name, f"aten::{name} {why}.")
    if has_kernel(name, "CompositeImplicitAutograd"):
        if name not in LEAVES:
            return Refusal(name, f"aten::{name} is composed of other ops; swap the one that the trace shows under it.")
        return swappable(LEAVES[name])
    keys = tuple(key for key in KEYS if has_kernel(name, key))
    return Swappable(name, keys) if keys else Refusal(name, f"aten::{name} has no kernel of its own on a CPU or GPU.")


def unfit(found: Any) -> str:
    """Why an op does more than compute a new result, or one that repeats."""
    schema = found._schema
    if torch.Tag.nondeterministic_seeded in found.tags:
        return "draws random numbers"
    if schema.name.endswith("_") and not schema.name.endswith("__"):
        return "works in place"
    if schema.is_mutable:
        return "writes to its arguments"
    if any(value.alias_info is not None for value in schema.returns):
        return "returns a view of its argument"
    return ""


def overload(name: str) -> Any:
    packet, _, which = name.partition(".")
    try:
        return getattr(getattr(torch.ops.aten, packet), which or "default")
    except AttributeError:
        return None


def has_kernel(name: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key))
