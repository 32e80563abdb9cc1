"""Seeded matrices of known structure: what the QR kernels are checked and timed on.

The structures of the QR contest, made anew from their description, and inputs that break careless kernels. They are
defined for m x n; where the contest, which has square matrices only, counts columns up to a breaking point, such as the
rank, k = min(m, n) stands for its n. Column scales run over the n columns, row scales over the m rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

HUGE = MappingProxyType({torch.float32: 1e37, torch.float64: 1e306})
DENORMAL = MappingProxyType({torch.float32: 1e-41, torch.float64: 1e-311})


@dataclass(frozen=True)
class Draw:
    """Where the random numbers of one input come from, and the `cond` it was asked for."""

    generator: torch.Generator
    device: torch.device
    dtype: torch.dtype
    cond: float

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.device, dtype=self.dtype)

    def integers(self, below: int, count: int) -> Tensor:
        return torch.randint(below, (count,), generator=self.generator, device=self.device)

    def falling(self, decades: float, count: int) -> Tensor:
        """From 1 down to 10^-decades in `count` equal ratios."""
        return torch.logspace(0, -decades, count, device=self.device, dtype=self.dtype)

    def line(self, start: float, end: float, count: int) -> Tensor:
        return torch.linspace(start, end, count, device=self.device, dtype=self.dtype)


Structure = Callable[[Tensor, Draw], Tensor]


def make(
    case: str,
    batch: int,
    m: int,
    n: int,
    *,
    cond: float,
    seed: int,
    device: torch.device | str,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """`batch` matrices of structure `case`: a contiguous (batch, m, n) tensor, the same for the same seed and device.

    `cond` is the number of decades over which columns (rowscale: rows) fall off, not a condition number. Raises
    ValueError for a case that is not in CASES.
    """
    if case not in STRUCTURES:
        raise ValueError(f"no structure {case!r}: one of {', '.join(CASES)}")
    device = torch.device(device)
    draw = Draw(torch.Generator(device).manual_seed(seed), device, dtype, cond)
    base = draw.normal(batch, m, n)
    if base.numel() == 0:
        return base
    return STRUCTURES[case](base, draw).contiguous()


def dense(a: Tensor, draw: Draw) -> Tensor:
    """Normal numbers; column j of n times 10^(-cond j / (n - 1))."""
    return a * draw.falling(draw.cond, a.shape[-1]) if draw.cond else a


def upper(a: Tensor, draw: Draw) -> Tensor:
    """The upper triangle (m > n: rows of zeros below it), 1 down to 0.25 added to its diagonal, columns as in dense."""
    return dense(with_diagonal(a.triu(), draw.line(1, 0.25, small_side(a))), draw)


def diagonal(a: Tensor, draw: Draw) -> Tensor:
    """Random signs times max(cond, 2) decades on the main diagonal, zeros elsewhere."""
    signs = torch.where(a.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(a.dtype)
    return with_diagonal(torch.zeros_like(a), signs * draw.falling(max(draw.cond, 2), small_side(a)))


def rankdef(a: Tensor, draw: Draw) -> Tensor:
    """Columns from max(1, 3k // 4) on are zero, columns as in dense."""
    a = dense(a, draw).clone()
    a[..., rank(a) :] = 0
    return a


def nearrank(a: Tensor, draw: Draw) -> Tensor:
    """Columns from r = max(1, 3k // 4) on repeat the first r in turn, with 1e-5 of noise; columns as in dense."""
    r, n = rank(a), a.shape[-1]
    repeats = a[..., torch.arange(n - r, device=a.device) % r]
    noise = draw.normal(*repeats.shape)
    return dense(torch.cat([a[..., :r], repeats + 1e-5 * noise], dim=-1), draw)


def clustered(a: Tensor, draw: Draw) -> Tensor:
    """Columns from h = k // 2 on times 4 eps of the dtype; h - 2 to h + 1 times sqrt(eps). `cond` is ignored."""
    half, eps = small_side(a) // 2, torch.finfo(a.dtype).eps
    scales = torch.ones(a.shape[-1], device=a.device, dtype=a.dtype)
    scales[half:] = 4 * eps
    scales[max(half - 2, 0) : half + 2] = eps**0.5
    return a * scales


def band(a: Tensor, draw: Draw) -> Tensor:
    """abs(i - j) <= max(2, min(32, n // 32)), 1 down to 0.5 added to the diagonal, columns as in dense."""
    width = max(2, min(32, a.shape[-1] // 32))
    return dense(with_diagonal(a.triu(-width).tril(width), draw.line(1, 0.5, small_side(a))), draw)


def rowscale(a: Tensor, draw: Draw) -> Tensor:
    """Row i of m times 10^(-max(cond, 4) i / (m - 1))."""
    return a * draw.falling(max(draw.cond, 4), a.shape[-2]).unsqueeze(-1)


def nearcollinear(a: Tensor, draw: Draw) -> Tensor:
    """One column for all, with 1e-4 of noise, columns as in dense."""
    column = draw.normal(*a.shape[:-1], 1)
    return dense(column + 1e-4 * draw.normal(*a.shape), draw)


def mixed(a: Tensor, draw: Draw) -> Tensor:
    """Each matrix dense (half of them, on average), or of one of six other structures; two or more have both kinds."""
    weights = torch.tensor(list(MIXTURE.values()), dtype=torch.float64)
    batch = a.shape[0]
    drawn = torch.multinomial(weights.to(a.device), batch, replacement=True, generator=draw.generator).cpu()
    place, other = int(draw.integers(batch, 1)), 1 + int(draw.integers(len(MIXTURE) - 1, 1))
    if batch > 1 and not (drawn == 0).any():
        drawn[place] = 0
    if batch > 1 and (drawn == 0).all():
        drawn[place] = other
    out = a.clone()
    for label, name in enumerate(MIXTURE):
        where = (drawn == label).nonzero().squeeze(-1).to(a.device)
        if len(where):
            out[where] = STRUCTURES[name](a[where], draw)
    return out


def zero(a: Tensor, draw: Draw) -> Tensor:
    return torch.zeros_like(a)


def repeated(a: Tensor, draw: Draw) -> Tensor:
    """Every column the same; columns as in dense."""
    return dense(a[..., :1].expand_as(a), draw)


def single_bad(a: Tensor, draw: Draw) -> Tensor:
    """Dense, but one matrix of the batch has one NaN or infinity (either sign) somewhere."""
    bad = torch.tensor([float("nan"), float("inf"), float("-inf")], device=a.device, dtype=a.dtype)
    out = dense(a, draw).clone()
    out.view(-1)[draw.integers(a.numel(), 1)] = bad[draw.integers(len(bad), 1)]
    return out


def huge(a: Tensor, draw: Draw) -> Tensor:
    """Dense times 1e37 (float64: 1e306): squares and sums overflow, the factors do not below about 500 rows."""
    return dense(a, draw) * HUGE[a.dtype]


def denormal(a: Tensor, draw: Draw) -> Tensor:
    """Dense times 1e-41 (float64: 1e-311): every number is denormal, and has about 13 bits."""
    return dense(a, draw) * DENORMAL[a.dtype]


def tiny_column(a: Tensor, draw: Draw) -> Tensor:
    """Dense, but one column of each matrix, anywhere, is denormal."""
    columns = draw.integers(a.shape[-1], a.shape[0]).view(-1, 1, 1)
    here = torch.arange(a.shape[-1], device=a.device) == columns
    return torch.where(here, a * DENORMAL[a.dtype], dense(a, draw))


def small_side(a: Tensor) -> int:
    return min(a.shape[-2:])


def rank(a: Tensor) -> int:
    return max(1, 3 * small_side(a) // 4)


def with_diagonal(a: Tensor, values: Tensor) -> Tensor:
    """A copy of `a` with `values` added to its main diagonal."""
    out = a.clone()
    out.diagonal(dim1=-2, dim2=-1).add_(values)
    return out


STRUCTURES: Mapping[str, Structure] = MappingProxyType(
    {
        made.__name__: made
        for made in (
            *(dense, upper, diagonal, rankdef, nearrank, clustered, band, rowscale, nearcollinear, mixed),
            *(zero, repeated, single_bad, huge, denormal, tiny_column),
        )
    }
)
CASES: tuple[str, ...] = tuple(STRUCTURES)
MIXTURE: Mapping[str, float] = MappingProxyType(
    {"dense": 6, "rankdef": 1, "nearrank": 1, "clustered": 1, "band": 1, "rowscale": 1, "nearcollinear": 1}
)
