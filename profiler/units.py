"""The only formatter and parser of quantities. Three significant digits, the unit always printed."""

import math
import re

MISSING = "–"  # not measured; never 0

_TIME = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
_NUMBER = r"([0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?|[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_DURATION = re.compile(_NUMBER + r" ?(ns|[uµμ]s|ms|s)", re.ASCII)  # micro sign and mu
_RATIO = re.compile(_NUMBER + " ?x")


def digits(value: float) -> str:
    """`value` with three significant digits and no exponent below 1e6."""
    if abs(value) < 5e-7:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(places, 6)}f}"
    return text


def time(ns: float | None) -> str:
    """A duration in ns as text: `1.23 ms`, `45.6 us`, `–`."""
    if ns is None:
        return MISSING
    for scale, unit in _TIME:
        if abs(ns) >= 0.9995 * scale:
            return f"{digits(ns / scale)} {unit}"
    return f"{digits(ns)} ns"


def signed(value: float) -> str:
    """`digits` of a difference, with its sign."""
    return f"+{digits(value)}" if value > 0 else digits(value)


def moment(ns: float, step_ns: float) -> str:
    """A point in time, ns, with the digits that tell it from one `step_ns` later: `12.345 ms`."""
    scale, unit = _TIME[0] if step_ns >= 1e9 else _TIME[1]
    places = max(0, -math.floor(math.log10(step_ns / scale)))
    return f"{ns / scale:,.{places}f} {unit}"


def parse_time(text: str) -> float:
    """ns of a duration as `time` prints one: `120us`, `1.5 ms`, `1,200 s`. Raises ValueError for anything else."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no time: give a number and a unit, such as 120us, 1.5ms or 800ns")
    unit = re.sub("[µμ]", "u", found[2])
    return _number(found[1]) * next(scale for scale, name in _TIME if name == unit)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def share(fraction: float | None) -> str:
    """A share in 0..1 as `12.3 %`."""
    return MISSING if fraction is None else f"{100 * fraction:.1f} %"


def ratio(x: float | None) -> str:
    """A speedup old/new as `1.42x`; above 100 it is an order of magnitude, not a figure."""
    if x is None:
        return MISSING
    if math.isinf(x):
        return "inf"
    return f"{x:.2f}x" if x < 10 else f"{x:.1f}x" if x < 100 else ">100x"


def parse_ratio(text: str) -> float:
    """A speedup as `ratio` prints one up to 100: `4x`, `1.25x`. Raises ValueError for anything else."""
    found = _RATIO.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no speedup: give a number and an x, such as 4x")
    return _number(found[1])


def size(count: float | None) -> str:
    """Bytes as `1.50 MiB`."""
    if count is None:
        return MISSING
    for scale, unit in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if abs(count) >= scale:
            return f"{digits(count / scale)} {unit}"
    return f"{count:.0f} B"


def rate(flops_per_second: float | None) -> str:
    """Flop/s as `1.23 TFLOP/s`."""
    if flops_per_second is None:
        return MISSING
    for scale, unit in ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s")):
        if abs(flops_per_second) >= scale:
            return f"{digits(flops_per_second / scale)} {unit}"
    return f"{digits(flops_per_second)} FLOP/s"


def calls(count: float | None) -> str:
    """Calls a step: whole numbers plainly, others (1 call each 10 steps) with up to three digits."""
    if count is None:
        return MISSING
    return f"{count:,.0f}" if abs(count - round(count)) < 1e-9 else digits(count)


def counted(count: float, what: str) -> str:
    """1 launch, 2 launches, 0.1 calls."""
    ending = "" if round(count, 9) == 1 else "es" if what.endswith("h") else "s"
    return f"{calls(count)} {what}{ending}"
