"""Verdicts on a QR factorisation: the contest's gates, which let much through, and ours.

The contest bounds the largest column of a matrix, so a kernel may drop what small columns need. Ours bounds every
column by its own size, and holds the batch to the stock op's accuracy. Float32 stays below 0.04 of `column`'s unit
for matrices of hundreds of rows; one pass of TF32 reaches 7 and more.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from qrprof.kernels.residuals import Residuals, residuals, residuals_qr, roundings

__all__ = ["Reason", "Residuals", "Verdict", "contest", "residuals", "residuals_qr", "strict"]

CONTEST_FACTOR = 20.0
CONTEST_ORTHOGONALITY = 100.0
COLUMN = 1.0
ORTHOGONALITY = 5.0
TIMES_STOCK = 10.0
STOCK_FLOOR = 0.05
STOCK_ROUNDINGS = 10


@dataclass(frozen=True)
class Reason:
    """A check that failed. `at` is the index in the batch of the worst matrix, or of the first one; None for a batch.

    `measured` and `limit` are in the units of `residuals`; for truths they are None.
    """

    check: str
    failing: int
    matrices: int
    at: tuple[int, ...] | None = None
    measured: float | None = None
    limit: float | None = None
    column: int | None = None

    def __str__(self) -> str:
        numbers = "" if self.measured is None else f" {self.measured:.3g} > {self.limit:.3g}"
        column = "" if self.column is None else f", column {self.column}"
        where = "" if self.at is None else f" ({self.failing} of {self.matrices} matrices, at {self.at}{column})"
        return f"{self.check}{numbers}{where}"


@dataclass(frozen=True)
class Verdict:
    reasons: tuple[Reason, ...]

    @property
    def passed(self) -> bool:
        return not self.reasons

    def __str__(self) -> str:
        return "passed" if self.passed else "; ".join(str(reason) for reason in self.reasons)


def contest(own: Residuals) -> Verdict:
    """The contest's: factor <= 20, orthogonality <= 100, all outputs finite. (It forms Q in float32, we in float64.)"""
    return collected(
        truth(own, "finite", own.each.finite),
        bounded(own, "factor", CONTEST_FACTOR),
        bounded(own, "orthogonality", CONTEST_ORTHOGONALITY),
    )


def strict(own: Residuals, stock: Residuals | None = None) -> Verdict:
    """Ours. `stock` is of the stock op on the same batch; without it, nothing is compared with the stock op.

    Checks: finite, triangle, tau, sign, column <= 1, orthogonality <= 5, and for these two the median and the maximum
    over the batch: at most 10 times the stock op's, or 0.05, or 10 eps in all, since the stock op may be lucky with few
    numbers; matrices that the stock op itself leaves beyond the first bound are not compared. Raises ValueError if
    `stock` is of another shape.
    """
    reasons = [
        truth(own, "finite", finite_as(own, stock)),
        *(truth(own, check, getattr(own.each, check)) for check in ("triangle", "tau", "sign")),
        bounded(own, "column", COLUMN),
        bounded(own, "orthogonality", ORTHOGONALITY),
    ]
    if stock is not None:
        reasons += [reason for measure in ("column", "orthogonality") for reason in as_stock(own, stock, measure)]
    return collected(*reasons)


def finite_as(own: Residuals, stock: Residuals | None) -> Tensor:
    """Where finite and not finite agree with the stock op, or with A; we need not overflow where the stock op does."""
    if stock is None:
        return own.each.finite == own.each.finite_input
    if (own.batch, own.m, own.n) != (stock.batch, stock.m, stock.n):
        raise ValueError(f"{own.batch} of {own.m} x {own.n} against {stock.batch} of {stock.m} x {stock.n}")
    return (own.each.finite == stock.each.finite) | (own.each.finite & own.each.finite_input)


def as_stock(own: Residuals, stock: Residuals, measure: str) -> list[Reason | None]:
    """The median and the maximum over the matrices that are finite in both and that the stock op has factored.

    cuSOLVER does not reflect columns of denormals: a result that is no factorisation is no measure of orthogonality.
    """
    both = own.each.finite & stock.each.finite & own.each.finite_input & (stock.each.column <= COLUMN)
    if not both.any():
        return []
    ours, theirs = (getattr(x.each, measure)[both].nan_to_num(torch.inf, posinf=torch.inf) for x in (own, stock))
    floor = max(STOCK_FLOOR, STOCK_ROUNDINGS / roundings(own.m))
    found: list[Reason | None] = []
    for name, over in (("median", torch.median), ("maximum", torch.max)):
        measured, limit = float(over(ours)), max(TIMES_STOCK * float(over(theirs)), floor)
        check = f"{measure} {name}"
        found.append(None if measured <= limit else Reason(check, len(ours), len(ours), None, measured, limit))
    return found


def truth(own: Residuals, check: str, good: Tensor) -> Reason | None:
    failing = (~good).nonzero().flatten()
    return Reason(check, len(failing), len(good), own.place(int(failing[0]))) if len(failing) else None


def bounded(own: Residuals, measure: str, limit: float) -> Reason | None:
    """NaN is over every limit."""
    values: Tensor = getattr(own.each, measure)
    failing = ~(values <= limit)
    if not failing.any():
        return None
    worst = int(values.nan_to_num(torch.inf, posinf=torch.inf).argmax())
    column = int(own.each.column_at[worst]) if measure == "column" else None
    return Reason(measure, int(failing.sum()), len(values), own.place(worst), float(values[worst]), limit, column)


def collected(*found: Reason | None) -> Verdict:
    return Verdict(tuple(reason for reason in found if reason is not None))
