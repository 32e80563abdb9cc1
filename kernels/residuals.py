"""How far a QR factorisation is from A, in float64, for each matrix of a batch.

Errors are in units of what rounding makes of them, so that 1 means much the same at every size:
    factor         ||R - Q^T A||_1          per  s eps ||A||_1               (s = m: LAPACK's TESTING/LIN/?qrt01)
    column         ||(R - Q^T A) e_j||_1    per  s (eps ||A e_j||_1 + sqrt(k) eta), for the worst column j
    orthogonality  ||Q^T Q - I||_1          per  s eps                       (the same)
s = max(m, 16), as a few rows have a few roundings each. eps is the distance from 1 to the next number of A's dtype,
k = min(m, n), and eta the smallest denormal: k reflectors leave that much in a column of denormal numbers. Where Q is
not square, R - Q^T A does not see what Q does not span, and the larger of it and A - Q R is taken. Two zeros divide to
0, and an error where nothing is allowed to infinity.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from qrprof.kernels.signs import has_lapack_signs, keeps_triangles

CHUNK = 2**25  # numbers of float64 in one operand at a time: 256 MiB
LARGE, SCALE = 2.0**500, 2.0**600
FEWEST_ROUNDINGS = 16
TAU_ROUNDING = 8  # eps: a kernel's tau may end as far outside [1, 2]
QUANTILES = (0.5, 0.9, 0.99, 1.0)


class PerMatrix(NamedTuple):
    """One number or truth for each matrix, on the CPU, in the order of the flattened batch."""

    finite_input: Tensor
    finite: Tensor  # the outputs; where they are not, the measures below are 0 and the truths true
    factor: Tensor
    column: Tensor
    column_at: Tensor
    orthogonality: Tensor
    triangle: Tensor  # R is exactly zero below the diagonal
    tau: Tensor  # 0, or in [1, 2], as a real Householder reflector of LAPACK has it
    sign: Tensor  # the diagonal of R has LAPACK's signs


@dataclass(frozen=True)
class Spread:
    """One measure over the finite matrices of a batch; `at` is the index of the worst one, None if there is none."""

    p50: float
    p90: float
    p99: float
    worst: float
    at: tuple[int, ...] | None


@dataclass(frozen=True)
class Residuals:
    batch: tuple[int, ...]
    m: int
    n: int
    each: PerMatrix

    def place(self, flat: int) -> tuple[int, ...]:
        """The index in the batch of the matrix at `flat`."""
        return tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), self.batch)) if self.batch else ()

    def spread(self, measure: str) -> Spread:
        """Quantiles of `factor`, `column` or `orthogonality`; NaN counts as infinity."""
        values: Tensor = getattr(self.each, measure).nan_to_num(torch.inf, posinf=torch.inf)
        values = values[self.each.finite]
        if not len(values):
            return Spread(0.0, 0.0, 0.0, 0.0, None)
        ranked = values.sort().values
        p50, p90, p99, worst = (float(ranked[round(q * (len(ranked) - 1))]) for q in QUANTILES)
        nth = int(self.each.finite.nonzero()[values.argmax()])
        return Spread(p50, p90, p99, worst, self.place(nth))


def residuals(a: Tensor, h: Tensor, tau: Tensor) -> Residuals:
    """Of geqrf's result: A and H (..., m, n), tau (..., min(m, n)). Q is formed in float64.

    Raises ValueError where shapes or dtypes do not belong together.
    """
    m, n = a.shape[-2:]
    require(a, {"H": h, "tau": tau}, {"H": (m, n), "tau": (min(m, n),)})
    return gathered(a, [of_geqrf(*some) for some in chunks(m * n, a, h, tau.unsqueeze(-2))])


def residuals_qr(a: Tensor, q: Tensor, r: Tensor, *, signs: bool = True) -> Residuals:
    """Of qr's result: A (..., m, n), Q (..., m, p), R (..., p, n); p is min(m, n) (reduced) or m (complete).

    `signs` false: they are taken for LAPACK's, as a stock op's are; telling them is most of the work on a GPU. Raises
    ValueError where shapes or dtypes do not belong together.
    """
    m, n = a.shape[-2:]
    p = q.shape[-1]
    if p not in (min(m, n), m):
        raise ValueError(f"Q has {p} columns for A of {m} x {n}")
    require(a, {"Q": q, "R": r}, {"Q": (m, p), "R": (p, n)})
    return gathered(a, [of_qr(*some, signs=signs) for some in chunks(m * max(n, p), a, q, r)])


def require(a: Tensor, given: dict[str, Tensor], own: dict[str, tuple[int, ...]]) -> None:
    for name, x in given.items():
        shape = (*a.shape[:-2], *own[name])
        if tuple(x.shape) != shape or x.dtype != a.dtype or x.device != a.device:
            got = f"{tuple(x.shape)} {x.dtype} on {x.device}"
            raise ValueError(f"{name} is {got}, not {shape} {a.dtype} on {a.device}")


def chunks(numbers: int, *tensors: Tensor) -> Iterator[list[Tensor]]:
    """Runs of matrices of the flattened batch, operands of CHUNK numbers or one matrix at most; at least one run."""
    batch = tensors[0].shape[:-2].numel()
    flat = [x.detach().reshape(batch, *x.shape[-2:]) for x in tensors]
    size = max(1, CHUNK // max(1, numbers))
    for start in range(0, max(1, batch), size):
        yield [x[start : start + size] for x in flat]


def gathered(a: Tensor, parts: list[PerMatrix]) -> Residuals:
    m, n = a.shape[-2:]
    each = PerMatrix(*(torch.cat(column).cpu() for column in zip(*parts, strict=True)))
    return Residuals(tuple(a.shape[:-2]), m, n, each)


def of_geqrf(a: Tensor, h: Tensor, tau: Tensor) -> PerMatrix:
    tau = tau.squeeze(-2)
    finite_input, finite = are_finite(a), are_finite(h) & are_finite(tau)
    a, h, tau = (only(finite_input & finite, x) for x in (a, h, tau))
    k = tau.shape[-1]
    slack = TAU_ROUNDING * torch.finfo(a.dtype).eps
    in_range = (tau == 0) | ((tau >= 1 - slack) & (tau <= 2 + slack))
    same_side = ~((tau > 0) & (tau < 1 - slack)).any(-1)
    if k == a.shape[-2] > 0:
        same_side &= tau[:, -1] == 0  # the last row has nothing below it to reflect
    q = form_q(h[..., :k].double(), tau.double())
    r = h[:, :k].triu()
    sign = same_side & keeps_triangles(a, r)
    return PerMatrix(finite_input, finite, *errors(a, q, r), torch.ones_like(finite), in_range.all(-1), sign)


def of_qr(a: Tensor, q: Tensor, r: Tensor, *, signs: bool) -> PerMatrix:
    finite_input, finite = are_finite(a), are_finite(q) & are_finite(r)
    a, q, r = (only(finite_input & finite, x) for x in (a, q, r))
    q = torch.where(finite_input[:, None, None] & finite[:, None, None], q, eye_like(q))
    triangle = (r.tril(-1) == 0).flatten(1).all(-1)
    yes = torch.ones_like(finite)
    sign = has_lapack_signs(q[..., : min(a.shape[-2:])].double()) & keeps_triangles(a, r) if signs else yes
    return PerMatrix(finite_input, finite, *errors(a, q.double(), r), triangle, yes, sign)


def form_q(v: Tensor, tau: Tensor) -> Tensor:
    """Q's first k columns (..., m, k) from H's k columns: I - V T V^T, with no loop over columns or matrices.

    T = (I + D S)^-1 D with D = diag(tau) and S the strict upper triangle of V^T V: Joffrain et al., Accumulating
    Householder transformations, revisited (2006), written so that tau may be 0. V here has no ones or R in it yet.
    """
    v = v.tril(-1) + eye_like(v)
    coupling = tau.unsqueeze(-1) * (v.mT @ v).triu(1)
    top = tau.unsqueeze(-1) * v[..., : v.shape[-1], :].mT
    applied: Tensor = torch.linalg.solve_triangular(coupling + eye_like(coupling), top, upper=True)
    return eye_like(v) - v @ applied


def errors(a: Tensor, q: Tensor, r: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(factor, column, column_at, orthogonality) of A, R in their dtype and Q in float64."""
    info = torch.finfo(a.dtype)
    m, k = a.shape[-2], min(a.shape[-2:])
    unit, eta = roundings(m) * info.eps, info.smallest_normal * info.eps
    scale = safe_scale(a)
    a, r = a.double() * scale, r.double() * scale
    error = column_sums(r - q.mT @ a)
    if q.shape[-1] < m:
        error = torch.maximum(error, column_sums(a - q @ r))
    sizes = column_sums(a)
    column, column_at = largest(ratio(error, unit * sizes + roundings(m) * k**0.5 * eta * scale.flatten(1)))
    factor = ratio(largest(error)[0], unit * largest(sizes)[0])
    gram = q.mT @ q
    skew = largest(column_sums(gram - eye_like(gram)))[0]
    return factor, column, column_at, skew / unit


def roundings(m: int) -> int:
    return max(m, FEWEST_ROUNDINGS)


def safe_scale(a: Tensor) -> Tensor:
    """A power of two for each matrix, (batch, 1, 1), with which float64 neither overflows nor underflows; mostly 1."""
    peak = largest(a.flatten(1).abs().double())[0]
    one = torch.ones_like(peak)
    scale = torch.where(peak > LARGE, one / SCALE, torch.where(peak < 1 / LARGE, one * SCALE, one))
    return scale.view(-1, 1, 1)


def column_sums(x: Tensor) -> Tensor:
    return x.abs().sum(-2)


def largest(x: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of each row, NaN above all, and where; 0 at 0 in rows of none."""
    if x.shape[-1] == 0:
        return x.new_zeros(x.shape[:-1]), torch.zeros(x.shape[:-1], dtype=torch.int64, device=x.device)
    found = x.max(-1)
    return found.values, found.indices


def ratio(error: Tensor, unit: Tensor) -> Tensor:
    return torch.where(error == 0, 0.0, error / unit)


def eye_like(x: Tensor) -> Tensor:
    """The identity of x's last two sizes, alone."""
    return torch.eye(*x.shape[-2:], dtype=x.dtype, device=x.device)


def are_finite(x: Tensor) -> Tensor:
    return x.isfinite().flatten(1).all(-1)


def only(good: Tensor, x: Tensor) -> Tensor:
    """Zeros in place of the other matrices."""
    return torch.where(good.view(-1, *[1] * (x.dim() - 1)), x, 0.0)
