"""How far a result is from the stock kernel's, and whether as near as rounding leaves it. All stays on the device."""

from typing import Any

import torch
from torch import Tensor

ROUNDINGS = 256.0  # eps that sums of thousands of numbers in another order are apart, of the largest number
LOW_ROUNDINGS = 8.0  # the same for 16 bits, whose sums are in 32


def agrees(result: Any, expected: Any) -> Tensor:
    """Whether outputs have the same form, strides too, and differ by no more than rounding."""
    pairs = list(zip(outputs(result), outputs(expected), strict=False))
    if not alike(result, expected) or any(a.stride() != b.stride() for a, b in pairs):
        return torch.zeros((), dtype=torch.bool, device=outputs(expected)[0].device)
    return torch.stack([apart(a, b) <= limit(b.dtype) for a, b in pairs]).all()


def difference(result: Any, expected: Any) -> Tensor:
    """The largest difference of a number from the stock kernel's over the largest number, of the worst output.

    inf where the forms differ, or one has a NaN or infinity that the other has not; numbers that are no floats are
    equal (0) or not (inf).
    """
    if not alike(result, expected):
        return torch.full((), torch.inf, dtype=torch.float64, device=outputs(expected)[0].device)
    return torch.stack([apart(a, b) for a, b in zip(outputs(result), outputs(expected), strict=True)]).amax()


def alike(result: Any, expected: Any) -> bool:
    """Whether there are as many outputs, of the same shapes, dtypes and devices."""
    ours, theirs = ([(one.shape, one.dtype, one.device) for one in outputs(x)] for x in (result, expected))
    return ours == theirs


def outputs(result: Any) -> list[Tensor]:
    several = result if isinstance(result, list | tuple) else [result]
    return [one for one in several if isinstance(one, Tensor)]


def apart(a: Tensor, b: Tensor) -> Tensor:
    same = (a == b) | (a.isnan() & b.isnan())
    if not (b.is_floating_point() or b.is_complex()):
        return torch.where(same.all(), 0.0, torch.inf).double()
    if not b.numel():
        return torch.zeros((), dtype=torch.float64, device=b.device)
    wide = [x.float() if x.element_size() < 4 else x for x in (a, b)]
    gap = torch.where(same, 0.0, (wide[0] - wide[1]).abs()).nan_to_num(torch.inf, posinf=torch.inf)
    largest = wide[1].abs().nan_to_num(0.0, posinf=0.0).amax()
    worst = gap.amax().double()
    return torch.where(worst == 0, 0.0, worst / largest.double())  # of nothing but zeros: any other number is too far


def limit(dtype: torch.dtype) -> float:
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    return (LOW_ROUNDINGS if dtype.itemsize < 4 else ROUNDINGS) * torch.finfo(dtype).eps
