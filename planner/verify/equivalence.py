"""Whether a program trains the same with swaps, from what stock and swapped runs recorded of their steps.

Rounding alone moves some programs far: SOAP makes tens of per cent of one ulp in some updates. So nothing is held to a
fixed tolerance, but to runs of the stock program whose swapped ops' inputs were moved by one rounding: the spread.

- Forced steps begin from the stock run's parameters, optimizer state and random state. What each leaves, gradients,
  updates and optimizer state, may be FORCED times as far from the stock run's as in the spread.
- Free steps follow them. The loss of each, and the size of each parameter's update, may be FREE times as far. Where the
  spread itself exceeds AMPLIFIED they prove nothing: the forced steps alone decide.

A parameter's spread is its own or the median parameter's, whichever is more, since a few runs may agree by chance. In
free steps some parameters hardly move in most runs and far in one: such a parameter may be off by as much more as the
run that is furthest off in it widens the spread of the others.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from statistics import median
from tempfile import gettempdir
from typing import Final, NamedTuple

from qrprof.kernels.running.watched import Parameter, Step, Trained
from qrprof.planner.verify.records import Amplified, Equivalence, Finding, Kind
from qrprof.profiler import units

FORCED: Final = 4.0
FREE: Final = 2.0
AMPLIFIED: Final = 0.10
ROUNDINGS: Final = 4  # to be off by as many is to be the same, whatever the spread
SHOWN: Final = 3  # names of parameters in a sentence
EPS: Final = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "complex128": 2.0**-52,
}
COARSE: Final = EPS["float32"]  # of what has no dtype here


class Of(NamedTuple):
    optimizer: int
    parameter: int


Measure = Callable[[Parameter, Parameter], float]  # (of a run, of the stock run) -> distance as a fraction
ByParameter = Mapping[Of, float]


def equivalence(stock: Trained, spread: Sequence[Trained], swapped: Trained) -> Equivalence:
    """Of runs of the same steps; `spread` are stock runs with moved inputs. Raises ValueError where there are none."""
    if not spread:
        raise ValueError("without a spread nothing says what rounding explains")
    steps = min(len(run.steps) for run in (stock, swapped, *spread))
    forced = [k for k in range(steps) if is_forced(swapped.steps[k])]
    free = range(forced[-1] + 1, steps) if forced else range(0)
    count = sum(map(len, stock.names))
    if why := incomparable(stock, spread, swapped, steps, forced):
        return Equivalence((why,), len(forced), len(free), count, 0.0, None)
    findings = broken(stock, swapped, forced) or gone_apart(stock, spread, swapped, forced)
    findings += random_numbers(stock, swapped, forced)
    amplified = amplification(stock, spread, free)
    if amplified.decides:
        findings += free_apart(stock, spread, swapped, free)
    most = max(widest(stock, [swapped], forced, gradient).values(), default=0.0)
    untouched = tuple(name for name, calls in in_forced(swapped, forced).items() if not calls)
    return Equivalence(tuple(findings), len(forced), len(free), count, most, amplified, untouched)


def is_forced(step: Step) -> bool:
    return any(one.apart is not None for one in step.parameters)


# --- whether the runs can be compared


def incomparable(
    stock: Trained, spread: Sequence[Trained], swapped: Trained, steps: int, forced: Sequence[int]
) -> Finding | None:
    if any(shape_of(run, steps) != shape_of(stock, steps) for run in spread):
        return Finding("not repeatable", "stock runs differ in their optimizers or parameters")
    if shape_of(swapped, steps) != shape_of(stock, steps):
        return Finding("crashed", "with the swaps the program has other optimizers or parameters than without")
    if not min(ends := [len(run.steps) for run in (stock, *spread)]) <= len(swapped.steps) <= max(ends):
        return Finding("crashed", f"with the swaps the program ends after {len(swapped.steps)} steps, stock {ends[0]}")
    if not forced:
        why = "the program ends too soon" if steps < 2 else f"there is no room for snapshots in {gettempdir()}"
        return Finding("not compared", f"no step begins as the stock program's did: {why}")
    if lost := [k for k in range(forced[0], steps) if not math.isfinite(loss_of(stock, k))]:
        return Finding("not repeatable", f"the stock program's loss in step {lost[0]} is {loss_of(stock, lost[0])}")
    if what := next(unbearable(stock, spread, forced), ""):
        return Finding("not repeatable", f"where inputs are moved by one rounding, {what}")
    if any(run.steps[k].random != stock.steps[k].random for run in spread for k in forced):
        return Finding("not repeatable", "stock runs draw different random numbers in steps that begin alike")
    if (moved := max(loss_spread([stock, *spread], forced))) > AMPLIFIED:
        return Finding(
            "not repeatable",
            f"losses of stock runs differ by {units.share(moved)} in steps that begin alike; give the program's data "
            "a seed",
        )
    if swapped.swaps.hits and not any(in_forced(swapped, forced).values()):
        return Finding("not compared", f"no swapped call fell in the {len(forced)} compared steps; give more --steps")
    return None


def in_forced(swapped: Trained, forced: Sequence[int]) -> dict[str, int]:
    """Calls in the forced steps, of each swap that served any at all."""
    before, after = swapped.steps[forced[0] - 1].hits, swapped.steps[forced[-1]].hits
    return {name: after.get(name, 0) - before.get(name, 0) for name, calls in swapped.swaps.by_name.items() if calls}


def unbearable(stock: Trained, spread: Iterable[Trained], forced: Sequence[int]) -> Iterator[str]:
    """What rounding alone makes no numbers of, in steps that begin alike."""
    for run in spread:
        yield from (f"the loss of step {k} is {loss_of(run, k)}" for k in forced if not math.isfinite(loss_of(run, k)))
        if any(one.kind == "not finite" for one in broken(stock, run, forced)):
            yield "gradients of the stock program are not finite"


def shape_of(run: Trained, steps: int) -> list[tuple[int, int]]:
    return [(step.optimizer, len(step.parameters)) for step in run.steps[:steps]]


# --- forced steps


def broken(stock: Trained, swapped: Trained, forced: Iterable[int]) -> list[Finding]:
    """Gradients that are missing, not finite, or of another dtype, where the stock run's are as they should be."""
    missing, infinite, retyped = set[Of](), set[Of](), set[Of]()
    for k in forced:
        least = COARSE * max((one.gradient for one in stock.steps[k].parameters), default=0.0)
        for of, ours, theirs in pairs(swapped, stock, k):
            if theirs.dtype is None or not math.isfinite(theirs.gradient):
                continue
            if ours.dtype is None or (ours.gradient == 0 and theirs.gradient > least):
                missing.add(of)
            elif ours.dtype != theirs.dtype:
                retyped.add(of)
            elif not math.isfinite(ours.gradient):
                infinite.add(of)
    found: list[tuple[Kind, set[Of], str]] = [
        ("no gradient", missing, "no gradient, or one of zeros"),
        ("dtype", retyped, "a gradient of another dtype"),
        ("not finite", infinite, "a gradient that is not finite"),
    ]
    return [
        Finding(kind, f"with the swaps {which(stock, where)} get {what}, unlike without")
        for kind, where, what in found
        if where
    ]


def gradient(ours: Parameter, theirs: Parameter) -> float:
    """Nothing is apart from a gradient that overflows in the stock run: a scaler of losses then skips the step."""
    return fraction(ours.apart.gradient, theirs.gradient) if ours.apart and math.isfinite(theirs.gradient) else 0.0


def update(ours: Parameter, theirs: Parameter) -> float:
    """Of a parameter that the stock run leaves where it is, up to roundings: whether it is left there."""
    if ours.apart and still(theirs):
        return 0.0 if ours.apart.update <= FORCED * of_weight(theirs) else math.inf
    return fraction(ours.apart.update, theirs.update) if ours.apart else 0.0


def still(theirs: Parameter) -> bool:
    return theirs.update <= of_weight(theirs)


def of_weight(theirs: Parameter) -> float:
    """What ROUNDINGS of a parameter are together."""
    return unit_of(theirs) * theirs.weight


def unit_of(theirs: Parameter) -> float:
    """ROUNDINGS, as a fraction."""
    return ROUNDINGS * EPS.get(theirs.dtype or "", COARSE)


def state(ours: Parameter, theirs: Parameter) -> float:
    return ours.apart.state if ours.apart else 0.0


MEASURES: Final[tuple[tuple[Kind, str, Measure], ...]] = (
    ("gradient", "the gradients", gradient),
    ("update", "the updates", update),
    ("state", "the optimizer's states", state),
)


def gone_apart(stock: Trained, spread: Sequence[Trained], swapped: Trained, forced: Sequence[int]) -> list[Finding]:
    findings = []
    for kind, what, measure in MEASURES:
        found, moved = widest(stock, [swapped], forced, measure), widest(stock, spread, forced, measure)
        allowed = limits(moved, roundings(stock, forced, measure), FORCED)
        if over := {of: off for of, off in found.items() if not off <= allowed[of]}:
            findings.append(Finding(kind, sentence(stock, what, over, allowed)))
    return findings


def random_numbers(stock: Trained, swapped: Trained, forced: Iterable[int]) -> list[Finding]:
    off = [k for k in forced if swapped.steps[k].random != stock.steps[k].random]
    if not off:
        return []
    return [Finding("random numbers", f"the swaps change random generators: in step {off[0]} they stand elsewhere")]


# --- free steps


def amplification(stock: Trained, spread: Sequence[Trained], free: Sequence[int]) -> Amplified:
    moved = norm_spread([stock, *spread], free)
    loss, middle = max(loss_spread([stock, *spread], free), default=0.0), median(moved.values()) if moved else 0.0
    beyond = sum(value > AMPLIFIED for value in moved.values())
    return Amplified(len(spread), loss, middle, beyond, decides=bool(free) and max(loss, middle) <= AMPLIFIED)


def free_apart(stock: Trained, spread: Sequence[Trained], swapped: Trained, free: Sequence[int]) -> list[Finding]:
    findings = []
    for k, width in zip(free, loss_spread([stock, *spread], free), strict=True):
        off = fraction(abs(loss_of(swapped, k) - loss_of(stock, k)), loss_of(stock, k))
        if not off <= FREE * max(width, ROUNDINGS * COARSE):
            text = f"the loss of step {k} is off by {percent(off)}, stock runs differ by {percent(width)}"
            findings.append(Finding("loss", text))
            break
    moved = {of: width for of, width in norm_spread([stock, *spread], free).items() if width <= AMPLIFIED}
    found, least = widest(stock, [swapped], free, update_norm), roundings(stock, free, update_norm)
    outliers = widening([stock, *spread], free, least)
    allowed = {of: limit * outliers[of] for of, limit in limits(moved, least, FREE).items()}
    if over := {of: off for of, off in found.items() if of in allowed and not off <= allowed[of]}:
        findings.append(Finding("update norm", sentence(stock, "the sizes of the updates", over, allowed)))
    return findings


def update_norm(ours: Parameter, theirs: Parameter) -> float:
    return fraction(abs(ours.update - theirs.update), theirs.update)


def norm_spread(runs: Sequence[Trained], steps: Sequence[int]) -> dict[Of, float]:
    """By parameter: the largest distance between two runs in the norm of one update."""
    widths: dict[Of, float] = {}
    for k in steps:
        for i, theirs in enumerate(runs[0].steps[k].parameters):
            norms = [run.steps[k].parameters[i].update for run in runs]
            of = Of(runs[0].steps[k].optimizer, i)
            widths[of] = max(widths.get(of, 0.0), fraction(width(norms), theirs.update))
    return widths


def widening(runs: Sequence[Trained], steps: Sequence[int], least: ByParameter) -> dict[Of, float]:
    """By parameter: how many times as wide the spread of update norms is with the run furthest off as without it."""
    whole = norm_spread(runs, steps)
    without = [norm_spread([run for run in runs if run is not one], steps) for one in runs]
    return {of: max(1.0, *(width / max(one[of], least[of]) for one in without)) for of, width in whole.items()}


def loss_spread(runs: Sequence[Trained], steps: Sequence[int]) -> list[float]:
    """By step: the largest distance between two runs in it or in one before it, as a fraction of the loss."""
    widths: list[float] = []
    for k in steps:
        losses = [loss_of(run, k) for run in runs]
        widths.append(max([fraction(width(losses), losses[0]), *widths[-1:]]))
    return widths


def loss_of(run: Trained, k: int) -> float:
    return run.steps[k].loss or 0.0


# --- distances


def pairs(run: Trained, stock: Trained, k: int) -> Iterator[tuple[Of, Parameter, Parameter]]:
    """The parameters of step `k`: whose, of the run, of the stock run."""
    ours, theirs = run.steps[k].parameters, stock.steps[k].parameters
    for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        yield Of(stock.steps[k].optimizer, i), one, other


def widest(stock: Trained, runs: Sequence[Trained], steps: Sequence[int], measure: Measure) -> dict[Of, float]:
    """By parameter: the largest distance of a run from the stock run in a step."""
    found: dict[Of, float] = {}
    for run in runs:
        for k in steps:
            for of, ours, theirs in pairs(run, stock, k):
                found[of] = worse(found.get(of, 0.0), measure(ours, theirs))
    return found


def roundings(stock: Trained, steps: Sequence[int], measure: Measure) -> dict[Of, float]:
    """By parameter: what ROUNDINGS of its numbers are, as the distances of `measure` are counted."""
    found: dict[Of, float] = {}
    for k in steps:
        for of, _, theirs in pairs(stock, stock, k):
            least = unit_of(theirs)
            if measure is update_norm or (measure is update and not still(theirs)):
                # An update is the difference of two weights: it has their roundings.
                least *= 1 + fraction(theirs.weight, theirs.update)
            found[of] = max(found.get(of, 0.0), least)
    return found


def limits(spread: ByParameter, least: ByParameter, factor: float) -> dict[Of, float]:
    """What rounding alone makes no number of has none."""
    known = {of: math.inf if math.isnan(own) else own for of, own in spread.items()}
    middle = median(known.values()) if known else 0.0
    return {of: factor * max(own, middle, least[of]) for of, own in known.items()}


def width(values: Sequence[float]) -> float:
    """The largest distance of two; infinite where one is not finite."""
    return max(values) - min(values) if all(map(math.isfinite, values)) else math.inf


def fraction(distance: float, of: float) -> float:
    """0 of nothing is 0; more than nothing of it is infinitely much."""
    if distance == 0 or math.isinf(distance):
        return distance
    return distance / abs(of) if of else math.inf


def worse(one: float, other: float) -> float:
    """The larger; what is not a number is worse than any."""
    return math.nan if math.isnan(one) or math.isnan(other) else max(one, other)


# --- sentences


def sentence(stock: Trained, what: str, over: ByParameter, allowed: ByParameter) -> str:
    worst = max(over, key=lambda of: math.inf if math.isnan(over[of]) else over[of] / (allowed[of] or COARSE))
    return (
        f"with the swaps {what} of {which(stock, over)} differ from those without: by {percent(over[worst])} in"
        f" {stock.names[worst.optimizer][worst.parameter]}, where at most {percent(allowed[worst])} is rounding"
    )


def which(stock: Trained, where: Collection[Of]) -> str:
    names = [stock.names[of.optimizer][of.parameter] for of in sorted(where)]
    more = [f"{len(names) - SHOWN} others"] if len(names) > SHOWN else []
    total = sum(map(len, stock.names))
    return f"{len(names)} of {total} parameters ({', '.join([*names[:SHOWN], *more])})"


def percent(value: float) -> str:
    """A distance, which may be far below one per cent."""
    return f"{100 * value:.2g} %"
