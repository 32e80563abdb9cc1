"""Which ops can be swapped, and what is said of the others."""

import pytest
import torch

from qrprof.kernels.guard import Swap
from qrprof.kernels.swap import SwapError, install
from qrprof.kernels.swappable import LEAVES, Refusal, Swappable, swappable

CUDA = ("CUDA",) if torch.version.cuda else ()


@pytest.mark.parametrize("op", ["aten::linalg_qr", "geqrf", "linalg_householder_product", "_softmax", "addmm", "bmm"])
def test_ops_with_a_kernel_of_their_own(op: str) -> None:
    assert swappable(op) == Swappable(op.removeprefix("aten::"), ("CPU", *CUDA))


@pytest.mark.parametrize(
    ("op", "leaf"),
    [
        ("aten::linear", "addmm"),
        ("matmul", "bmm"),
        ("layer_norm", "native_layer_norm"),
        ("softmax.int", "_softmax"),
        ("cross_entropy_loss", "_log_softmax"),
        ("linalg_svd", "_linalg_svd"),
    ],
)
def test_a_composite_is_mapped_to_its_leaf(op: str, leaf: str) -> None:
    found = swappable(op)
    assert isinstance(found, Swappable)
    assert found.op == leaf


@pytest.mark.parametrize("op", sorted(LEAVES))
def test_every_leaf_is_of_a_composite_and_exists(op: str) -> None:
    found = swappable(op)
    assert isinstance(found, Swappable) or "random" in found.why, found


@pytest.mark.parametrize(
    ("op", "why"),
    [
        ("native_dropout", "draws random numbers"),
        ("dropout", "draws random numbers"),
        ("randn", "draws random numbers"),
        ("bernoulli", "draws random numbers"),
        ("add_.Tensor", "works in place"),
        ("relu_", "works in place"),
        ("transpose.int", "returns a view"),
        ("view", "returns a view"),
        ("linalg_qr.out", "writes to its arguments"),
        ("_foreach_add_.Scalar", "works in place"),
        ("instance_norm", "composed of other ops"),
        ("no_such_op", "has no op aten::no_such_op"),
        ("empty.no_such_overload", "has no op"),
    ],
)
def test_others_are_refused_with_a_sentence(op: str, why: str) -> None:
    found = swappable(op)
    assert isinstance(found, Refusal)
    assert why in found.why
    assert found.why.endswith(".")


@pytest.mark.parametrize(("op", "why"), [("linear", "swap aten::addmm"), ("relu_", "works in place")])
def test_install_refuses_them_too_and_installs_nothing(op: str, why: str) -> None:
    with pytest.raises(SwapError, match=why):
        install([Swap(op, fast=torch.relu, decline=lambda *_: "")])
    assert "RegisterCPU" in repr(torch.library.get_kernel("aten::linalg_qr", "CPU"))
