"""The verdict of a verification, from what was found and measured, and what had been promised."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from qrprof.kernels.running.watched import Swaps
from qrprof.planner.gate.records import Interval
from qrprof.planner.predictions import Prediction
from qrprof.planner.verify.protocol import RESOLUTION, Round, leak, word
from qrprof.planner.verify.records import HARMFUL, IDLE, Expected, Finding, Gain, Memory, Outcome
from qrprof.profiler import units

REASONS: Final = 3  # of calls that stock served, in a sentence


def outcome_of(findings: Sequence[Finding], gain: Gain | None) -> Outcome:
    """Harm outweighs a swap that does nothing, which outweighs evidence that is missing; then the times decide."""
    kinds = {one.kind for one in findings}
    if kinds & HARMFUL:
        return "harmful"
    if kinds & IDLE:
        return "no difference"
    if kinds or gain is None:
        return "cannot tell"
    return "keep" if word(gain) == "faster" else "no difference"


def of_swaps(swaps: Swaps) -> list[Finding]:
    """Whether they served any call, and were right wherever a call was checked."""
    findings = [
        Finding("wrong results", f"{one.failed} of {one.checked} checked results of {one.op} are wrong")
        for one in swaps.served
        if one.failed
    ]
    findings += [
        Finding("wrong results", f"{one.errors} calls of {one.op} raised an error: {reasons(one.fallbacks)}")
        for one in swaps.served
        if one.errors
    ]
    return findings or ([] if swaps.hits else [Finding("not engaged", f"the swaps served no call: {why_idle(swaps)}")])


def of_timed(rounds: Sequence[Round]) -> list[Finding]:
    """What checks found in the steps that were timed, which go on after those that were compared."""
    legs = (of_swaps(leg.swaps) for one in rounds for leg in one.swapped)
    wrong = ([one for one in findings if one.kind == "wrong results"] for findings in legs)
    return next((findings for findings in wrong if findings), [])


def why_idle(swaps: Swaps) -> str:
    if swaps.refused:
        return "; ".join(swaps.refused)
    fallbacks: dict[str, int] = {}
    for one in swaps.served:
        for reason, calls in one.fallbacks.items():
            fallbacks[reason] = fallbacks.get(reason, 0) + calls
    return f"stock served {reasons(fallbacks)}" if fallbacks else "the program calls none of their ops"


def reasons(fallbacks: Mapping[str, int]) -> str:
    most = sorted(fallbacks.items(), key=lambda one: -one[1])[:REASONS]
    return ", ".join(f"{calls} ({reason})" for reason, calls in most)


def of_times(gain: Gain | None, memory: Memory | None) -> Iterator[Finding]:
    """What the times and the memory held speak against; None: no process timed enough steps."""
    if gain is None or memory is None:
        yield Finding("too few steps", "the program ends before enough steps are timed; let it run longer")
        return
    if found := leak(memory, gain.steps):
        yield found
    said, by = word(gain), f"{units.ratio(gain.speedup.low)} to {units.ratio(gain.speedup.high)} as fast"
    if said == "slower":
        yield Finding("slower", f"a step is {by} with the swaps, beyond the noise of {units.share(gain.noise)}")
    elif said == "cannot tell":
        yield Finding(
            "noise",
            f"a step is {by}, and processes of one kind differ by {units.share(gain.noise)}: too much to tell a"
            f" difference of {units.share(RESOLUTION)}; give more --rounds or --steps, or a quieter machine",
        )


def expected_of(made: Prediction) -> Expected:
    """A prediction of a step's time as a speedup."""
    base = made.base_ns
    low, mid, high = (base / max(ns, 1) for ns in (made.high_ns, made.middle_ns, made.low_ns))
    return Expected(made.id, base, Interval(low, mid, high))


def is_held(expected: Expected, gain: Gain) -> bool:
    """Whether what was measured is what was promised, as far as both are known."""
    return expected.speedup.low <= gain.speedup.high and gain.speedup.low <= expected.speedup.high
