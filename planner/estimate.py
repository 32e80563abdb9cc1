"""An interval and what it rests on."""

from dataclasses import dataclass
from enum import StrEnum


class Basis(StrEnum):
    """The evidence behind an estimate, best first."""

    MEASURED = "MEASURED"  # a kernel timed on this device for these shapes
    TABLE = "TABLE"  # the same, from a shipped table of this GPU model
    ROOFLINE = "ROOFLINE"  # flops and bytes of the shapes over measured peaks and a class efficiency
    CEILING = "CEILING"  # the time goes to zero: a bound, not a forecast
    ASSUMED = "ASSUMED"  # a person said how long it would take


@dataclass(frozen=True)
class Estimate:
    """`low <= mid <= high`, ns a step; `mid` is None where nothing speaks for a value inside the interval.

    Raises ValueError where the order does not hold or `low` is negative.
    """

    low: float
    mid: float | None
    high: float
    basis: Basis

    def __post_init__(self) -> None:
        mid = self.low if self.mid is None else self.mid
        if not 0 <= self.low <= mid <= self.high:
            raise ValueError(f"not an interval: low {self.low}, mid {self.mid}, high {self.high}")

    def off(self, total: float) -> "Estimate":
        """What is left of `total` when the estimated time is taken off it; `high` must not exceed `total`."""
        mid = None if self.mid is None else total - self.mid
        return Estimate(total - self.high, mid, total - self.low, self.basis)


def ceiling(total: float) -> Estimate:
    """The bare ceiling of a time of `total` ns: anything from 0 to all of it may remain."""
    return Estimate(0.0, None, total, Basis.CEILING)
