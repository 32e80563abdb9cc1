"""Whether a timing shows a gain: the lower bound of the speedup against the noise and the number of tries."""

from dataclasses import dataclass
from typing import Final

from qrprof.planner.gate.records import Detector, Interval, Outcome
from qrprof.planner.gate.stats import Noise, needed
from qrprof.profiler.units import ratio, share

HOPELESS: Final = 0.5  # of noise: more rounds do not help, and nothing short of slower is shown


@dataclass(frozen=True)
class Decision:
    outcome: Outcome
    detector: Detector | None  # None: PASS
    detail: str  # one sentence
    needed: float


def decide(speedup: Interval, noise: Noise, sigma: float, tries: int, base: str) -> Decision:
    """PASS where the lower bound exceeds what is needed; `base` names what the speedup is over.

    Not shown is FAIL ("noise") where the best estimate does not reach it either, and UNKNOWN where it does, or where
    the noise is HOPELESS: a quieter machine could show it. "slower" where even the upper bound says so, beyond the
    noise.
    """
    bound = needed(noise, sigma, tries)
    figures = (
        f"{ratio(speedup.mid)} the speed of {base} ({ratio(speedup.low)} to {ratio(speedup.high)}); needed is more "
        f"than {bound:.3f}x, with {share(noise.fraction)} of noise and {tries} {'try' if tries == 1 else 'tries'}"
    )
    if speedup.low > bound:
        return Decision("PASS", None, figures, bound)
    if speedup.high < 1 / (1 + noise.fraction):
        return Decision("FAIL", "slower", figures, bound)
    known = speedup.mid <= bound and noise.fraction < HOPELESS
    return Decision("FAIL" if known else "UNKNOWN", "noise", figures, bound)
