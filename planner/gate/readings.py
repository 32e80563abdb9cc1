"""What a timing's readings say: a call's time without the round trip, pairs, the child's clock beside ours. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from qrprof.planner.gate.stats import log_ratio
from qrprof.profiler.units import time

AGREE: Final = 0.9  # the child's clock must see this share of what the parent's does
SPREADS: Final = 4.0  # median deviations that a difference must exceed to be one
SWALLOWED: Final = 0.01  # of the median: the shortest time that a reading counts as
SLACK_NS: Final = 20_000.0  # of a request: what starts and ends one
LAUNCH_NS: Final = 5_000.0  # of a kernel: the host's share, which the child's clock may miss


@dataclass(frozen=True)
class Reading:
    """One request of one leg: `calls` calls of a case, each on inputs of its own."""

    calls: int
    wall_ns: int  # the parent's clock
    echo_ns: int  # of a request with the same bytes and no call
    testimony_ns: int  # the child's clock
    launches: int = 0


Readings = Sequence[Reading]  # of one leg and case: two for each pair, in order of time


def nets(readings: Readings) -> list[float]:
    """ns of a call by request, the round trip taken off. That is smoothed: its median, for each call."""
    trip = median(reading.echo_ns / reading.calls for reading in readings)
    return [reading.wall_ns / reading.calls - trip for reading in readings]


def logs(base: Readings, other: Readings) -> tuple[float, ...] | None:
    """The pairs' log ratios, base over other; None where the median of a leg's times is not above 0.

    A single reading that the round trip swallows counts as very short, which makes its pair an extreme one.
    """
    ours, theirs = nets(base), nets(other)
    if min(median(ours), median(theirs)) <= 0:
        return None
    ours, theirs = ([max(value, SWALLOWED * median(leg)) for value in leg] for leg in (ours, theirs))
    return tuple(log_ratio(ours[at : at + 2], theirs[at : at + 2]) for at in range(0, len(ours), 2))


def mismatch(candidate: Readings, stock: Readings) -> str | None:
    """How the child's clock and the parent's disagree on the candidate, in one sentence; None: they agree.

    What a harness does around the calls falls on the stock op's leg too, and is taken off.
    """
    seen = median(nets(candidate))
    hidden = [unseen(one) for one in candidate]
    usual = [unseen(one) for one in stock]
    calls = median(one.calls for one in candidate)
    excess = median(hidden) - max(median(usual), 0.0)
    allowed = (1 - AGREE) * max(seen, 0.0) + SPREADS * (deviation(hidden) + deviation(usual)) + SLACK_NS / calls
    told = median(one.testimony_ns / one.calls for one in candidate)
    if excess > allowed:
        return f"the child's clock saw {time(told)} of a call, the parent's {time(seen)}: work is done out of its sight"
    if any(one.testimony_ns <= 0 for one in candidate):
        return f"the child's clock stood still, the parent's saw {time(seen)} of a call"
    if all(one.testimony_ns > one.wall_ns for one in candidate):
        return f"the child's clock saw {time(told)} of a call, more than the parent's {time(seen)}"
    return None


def unseen(reading: Reading) -> float:
    """ns of a call that the parent's clock saw and the child's did not."""
    rest = reading.wall_ns - reading.echo_ns - reading.testimony_ns - LAUNCH_NS * reading.launches
    return rest / reading.calls


def deviation(values: Sequence[float]) -> float:
    """The median distance from the median."""
    middle = median(values)
    return median(abs(value - middle) for value in values)


def impossible(candidate: Readings, stock: Readings, floor_ns: float) -> str | None:
    """Whether the candidate is faster than the device can be, in one sentence; None: it is not.

    A stock op below the floor shows that the floor is wrong, so there is none. Nothing is said of calls that the round
    trip swallows, as on a busy machine.
    """
    ours = nets(candidate)
    slowest_likely = median(ours) + SPREADS * deviation(ours)
    if median(ours) <= 0 or median(nets(stock)) < floor_ns or slowest_likely >= floor_ns:
        return None
    return f"{time(median(ours))} a call, where the device's measured peaks allow no less than {time(floor_ns)}"
