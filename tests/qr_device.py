"""What tests of the QR kernels on a GPU share: inputs there, and a geqrf held against stock's."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from qrprof.kernels import structures
from qrprof.kernels.checks import residuals, strict

Result = Sequence[Tensor]


def matrices(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))


def made(structure: str, batch: int, m: int, n: int) -> Tensor:
    return structures.make(structure, batch, m, n, cond=2, seed=11, device="cuda")


def same_layout(found: Result, expected: Result) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine.shape, mine.stride(), mine.dtype) == (theirs.shape, theirs.stride(), theirs.dtype)


def same_bits(found: Result, expected: Result) -> bool:
    """Also of NaN."""
    bits = [
        (x.contiguous().view(torch.int32), y.contiguous().view(torch.int32))
        for x, y in zip(found, expected, strict=True)
    ]
    return all(torch.equal(x, y) for x, y in bits)


def factors_strictly(route: Any, a: Tensor) -> None:
    found, stock = route.geqrf(a), torch.geqrf(a)
    same_layout(found, stock)
    verdict = strict(residuals(a, *found), residuals(a, *stock))
    assert verdict.passed, f"geqrf: {verdict}"
