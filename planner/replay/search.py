"""Where a function is zero."""

from collections.abc import Callable
from typing import Final

ROUNDS: Final = 50
EASY: Final = 8  # rounds, after which every other one halves: beside a flat end false positions hardly move


def zero_of(off: Callable[[float], float], low: float, high: float, near: float) -> float | None:
    """Where `off` is within `near` of 0 between `low` and `high`, by false position (Illinois rule) and halves.

    None where its values at the two ends have one sign.
    """
    off_low, off_high = off(low), off(high)
    if min(abs(off_low), abs(off_high)) <= near:
        return low if abs(off_low) <= near else high
    if off_low * off_high > 0:
        return None
    value = high
    for turn in range(ROUNDS):
        halves = turn >= EASY and turn % 2 == 0
        value = (low + high) / 2 if halves else (low * off_high - high * off_low) / (off_high - off_low)
        error = off(value)
        if abs(error) <= near:
            break
        if error * off_high < 0:
            low, off_low = high, off_high
        else:
            off_low /= 2
        high, off_high = value, error
    return value
