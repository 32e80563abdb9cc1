"""How far an op's results are from float64, and whether they are as near as the stock kernel's.

The unit of a number is what rounding makes of it: half of it is the rounding of the result (eps of its size), the other
half how far the result moves when each input moves by its own rounding. Where a sum cancels, its unit is that of its
terms, as it must be; where nothing cancels, a unit is little more than eps. Errors in units are compared with the stock
kernel's among results of about the same size: a kernel that is bad for tiny results (1 + erf of a large negative
number) gives no leave to be bad for all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from qrprof.planner.gate.records import Plain, Tolerance

MOVES: Final = 8  # of the inputs, each in random directions: with 3, one number in 25 million hardly moved by chance
SPREAD: Final = 0.99  # of all numbers: the stock kernel's error that every size may have
NEAR: Final = 2  # binary orders that count as about the same size
EXPONENTS: Final = 2200  # of float64, with denormals
FULL: Final = (torch.float32, torch.float64)

Args = Sequence[Tensor | Plain]
Op = Callable[[Args], tuple[Tensor, ...]]  # in float64


@dataclass(frozen=True)
class Expected:
    """One output: its float64 value, and the unit of each number of it in the output's dtype."""

    value: Tensor
    unit: Tensor


@dataclass(frozen=True)
class Miss:
    """The worst number of an output. Errors are in units; `at` is its index."""

    at: tuple[int, ...]
    got: float
    expected: float
    error: float
    allowed: float
    stock: float
    count: int  # of numbers that miss
    of: int

    def __str__(self) -> str:
        place = f" at {self.at}" if self.at else ""
        return (
            f"{self.got:.6g}{place} is {self.expected:.6g} in float64: off by {self.error:.3g} units of rounding, the"
            f" stock kernel by {self.stock:.3g}, allowed are {self.allowed:.3g}; {self.count} of {self.of} numbers miss"
        )


def expect(
    op: Op, args: Args, values: Sequence[Tensor], dtypes: Sequence[torch.dtype], seed: int = 0
) -> tuple[Expected, ...]:
    """What the outputs, of these dtypes, should be. `values` is `op(args)`; the inputs move in random directions drawn
    from the seed.
    """
    moved = [torch.zeros(()) if not value.is_floating_point() else torch.zeros_like(value) for value in values]
    generators: dict[torch.device, torch.Generator] = {}
    for _ in range(MOVES):
        others = op([move(arg, generators, seed) for arg in args])
        moved = [
            torch.maximum(most, (other - value).abs().nan_to_num(0.0, 0.0, 0.0)) if value.is_floating_point() else most
            for most, other, value in zip(moved, others, values, strict=True)
        ]
    return tuple(
        Expected(value, most + rounding(value, dtype) if value.is_floating_point() else most)
        for value, most, dtype in zip(values, moved, dtypes, strict=True)
    )


def move(arg: Tensor | Plain, generators: dict[torch.device, torch.Generator], seed: int) -> Tensor | Plain:
    """A float tensor in float64, each number off by up to its dtype's eps; anything else as it is."""
    if not isinstance(arg, Tensor) or not arg.is_floating_point():
        return arg
    generator = generators.setdefault(arg.device, torch.Generator(arg.device).manual_seed(seed))
    step = torch.rand(arg.shape, generator=generator, device=arg.device, dtype=torch.float64) * 2 - 1
    return arg.double() * (1 + torch.finfo(arg.dtype).eps * step)


def rounding(value: Tensor, dtype: torch.dtype) -> Tensor:
    """eps of each number's size; no less than what a kernel may flush to zero (in float16: may round to), nor than what
    float64 itself may lose where it cancels.
    """
    info = torch.finfo(dtype)
    sizes = value.abs().nan_to_num(0.0, 0.0, 0.0)
    least = info.smallest_normal * (info.eps if dtype is torch.float16 else 1.0)
    lost = torch.finfo(value.dtype).eps * float(sizes.max()) if sizes.numel() else 0.0
    return sizes * info.eps + least + lost


def plainly_right(got: Tensor, stock: Tensor, value: Tensor, tolerance: Tolerance) -> bool:
    """Whether all numbers are within the floor by the rounding of the result alone: `miss` is None then."""
    if not got.is_floating_point():
        return bool(torch.equal(got, stock))
    errors = in_units(got, stock, Expected(value, rounding(value, got.dtype)))
    return bool((errors <= floor_of(got.dtype, tolerance)).all())


def floor_of(dtype: torch.dtype, tolerance: Tolerance) -> float:
    return tolerance.floor if dtype in FULL else tolerance.low_floor


def miss(got: Tensor, stock: Tensor, expected: Expected, tolerance: Tolerance) -> Miss | None:
    """The worst number of an output that is not as near to float64 as it must be; None where all are.

    An infinity that the stock kernel and float64 agree on must be there; where the stock kernel is not finite
    otherwise, nothing need be. Other than floats must be as in the reference or as the stock kernel's. `got` has the
    shape and dtype of `stock`.
    """
    if not got.is_floating_point():
        wrong = (got != stock) & (got != expected.value.to(got.dtype))
        return first(wrong, got, expected.value, torch.where(wrong, torch.inf, 0.0), 0.0, 0.0)
    errors, theirs = (in_units(one, stock, expected) for one in (got, stock))
    floor = floor_of(got.dtype, tolerance)
    allowed = torch.clamp(tolerance.factor * as_near(theirs, expected.value), min=floor)
    wrong = ~(errors <= allowed)
    return first(wrong, got, expected.value, torch.where(wrong, errors, 0.0), allowed, theirs)


def in_units(one: Tensor, stock: Tensor, expected: Expected) -> Tensor:
    """Errors in units; 0 where what is not finite is right, infinity where it is wrong."""
    rounded = expected.value.to(one.dtype)
    infinite = rounded.isinf() & (stock == rounded)
    right = (one == rounded) | (~stock.isfinite() & ~infinite & ~one.isfinite())
    error = (one.double() - expected.value).abs() / expected.unit
    return torch.where(right, 0.0, error.nan_to_num(torch.inf, torch.inf, torch.inf))


def as_near(theirs: Tensor, value: Tensor) -> Tensor:
    """The stock kernel's error that counts for each number: the largest of about its size, or of nearly all numbers."""
    if not value.numel():
        return theirs
    finite = theirs.nan_to_num(0.0, 0.0, 0.0).flatten()
    usual = finite.kthvalue(max(1, round(SPREAD * finite.numel()))).values
    known = value.nan_to_num(0.0, 0.0, 0.0).flatten()
    size = torch.where(known == 0, 0, torch.frexp(known).exponent.long() + EXPONENTS // 2)
    worst = torch.zeros(EXPONENTS, dtype=finite.dtype, device=finite.device).scatter_reduce_(0, size, finite, "amax")
    near = torch.nn.functional.max_pool1d(worst.view(1, 1, -1), 2 * NEAR + 1, stride=1, padding=NEAR).view(-1)
    return torch.maximum(near[size], usual).view(theirs.shape)


def first(
    wrong: Tensor, got: Tensor, value: Tensor, errors: Tensor, allowed: Tensor | float, theirs: Tensor | float
) -> Miss | None:
    count = int(wrong.sum())
    if not count:
        return None
    flat = int(errors.flatten().argmax())
    at = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), got.shape)) if got.dim() else ()

    def here(x: Tensor | float) -> float:
        return float(x.flatten()[flat]) if isinstance(x, Tensor) else x

    return Miss(at, here(got), here(value), here(errors), here(allowed), here(theirs), count, got.numel())
