"""Amdahl's law, and the only place where it is written down.

G. M. Amdahl, "Validity of the single processor approach to achieving large scale computing capabilities", AFIPS 1967.
Times are of one step of `total` ns, `part` ns of which are spent in the target.
"""

import math
from collections.abc import Sequence


def ceiling_x(total: float, part: float) -> float:
    """Speedup of the step if the target took no time, total / (total - part); inf if the target is the whole step.

    Raises ValueError unless 0 <= part <= total and total > 0.
    """
    return speedup_x(total, part, 0.0)


def speedup_x(total: float, part: float, new_part: float) -> float:
    """Speedup of the step if the target took `new_part` ns instead of `part`: total / (total - part + new_part).

    Raises ValueError unless 0 <= part <= total, total > 0 and new_part >= 0.
    """
    if not (0 <= part <= total and total > 0 and new_part >= 0):
        raise ValueError(f"no step of {total} ns has a part of {part} ns that becomes {new_part} ns")
    remaining = total - part + new_part
    return total / remaining if remaining > 0 else math.inf


def combined_x(total: float, parts: Sequence[float], new_parts: Sequence[float]) -> float:
    """Speedup of the step if several parts of it, of which no two share any time, changed at once.

    Raises ValueError as `speedup_x` does; parts that add up to the whole step may exceed it by a rounding.
    """
    part = math.fsum(parts)
    return speedup_x(total, total if math.isclose(part, total) else part, math.fsum(new_parts))
