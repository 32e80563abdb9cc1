"""How calls inside a swap's domain are served: by the swap, by both, or by the swap for some of them. Without torch."""

import math
from dataclasses import dataclass
from typing import Literal

from qrprof.profiler.errors import Exit, QrprofError

CHECK_EVERY = 64


@dataclass(frozen=True)
class Mode:
    """ "swap": the swap serves. "shadow": both compute, and the stock result is used. "canary": the swap serves `share`
    of the calls, chosen by their number, so that ranks that make the same calls choose the same ones.
    """

    kind: Literal["swap", "shadow", "canary"] = "swap"
    share: float = 1.0
    check_every: int = CHECK_EVERY  # one call in as many is checked

    def serves(self, nth: int) -> bool:
        """Whether the swap serves the call before which there were `nth`; the first one it does."""
        return math.ceil((nth + 1) * self.share) > math.ceil(nth * self.share)


def share_of(text: str) -> float:
    """ "5%" or "0.05". Raises QrprofError (exit code 2) for what is no share of calls above none."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise QrprofError(f"{text!r} is no share of the calls; give one above 0% and up to 100%", Exit.USAGE)
    return share
