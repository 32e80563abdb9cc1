import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.gate.floor import CALL_NS, floor_ns
from qrprof.planner.gate.promote import decide
from qrprof.planner.gate.records import ArgSpec, Interval, TaskCase
from qrprof.planner.gate.stats import (
    Noise,
    Pairs,
    interval,
    log_ratio,
    needed,
    noise_of,
    standard_error,
    together,
)
from qrprof.profiler.devices import Peaks

QUIET = Noise(0.02, 0.005)
logs = st.lists(st.floats(-3, 3), min_size=1, max_size=12)


def same(ratio: float, pairs: int = 5, weight: float = 1.0) -> Pairs:
    return Pairs(weight, (math.log(ratio),) * pairs)


def drawn(ratio: float, spread: float, pairs: int, seed: int) -> dict[str, Pairs]:
    random_ = random.Random(seed)
    return {"only": Pairs(1.0, tuple(random_.gauss(math.log(ratio), spread) for _ in range(pairs)))}


def test_pairs_that_agree_give_their_ratio() -> None:
    found = interval([math.log(2)] * 4)
    assert (found.low, found.mid, found.high) == pytest.approx((2, 2, 2))


def test_half_the_time_three_times_as_fast_gains_half() -> None:
    found = together({"a": same(1, weight=0.5), "b": same(3, weight=0.5)})
    assert found.mid == pytest.approx(1.5)  # 1 / (0.5 / 1 + 0.5 / 3)


def test_a_light_case_cannot_hide_a_heavy_one() -> None:
    found = together({"light": same(100, weight=0.01), "heavy": same(0.9, weight=0.99)})
    assert found.high < 1


def test_a_linear_drift_cancels_within_a_round() -> None:
    assert log_ratio([100, 130], [110, 120]) == pytest.approx(0)


def test_one_disturbed_pair_does_not_decide() -> None:
    found = interval([math.log(2)] * 8 + [math.log(0.01)])
    assert (found.low, found.mid) == pytest.approx((2, 2))


@pytest.mark.parametrize(("base", "other"), [([], [1.0]), ([1.0], [0.0]), ([1.0], [-5.0])])
def test_times_that_cannot_be_are_refused(base: list[float], other: list[float]) -> None:
    with pytest.raises(ValueError, match="positive"):
        log_ratio(base, other)


def test_a_case_without_pairs_is_refused() -> None:
    with pytest.raises(ValueError, match="no speedup"):
        together({"a": same(2), "b": Pairs(1.0, ())})


@given(logs, logs)
def test_an_interval_is_in_order_and_inside_the_extremes(one: list[float], two: list[float]) -> None:
    found = together({"a": Pairs(0.3, tuple(one)), "b": Pairs(0.7, tuple(two))})
    assert found.low <= found.mid <= found.high
    assert math.exp(min(one + two)) * (1 - 1e-9) <= found.low
    assert found.high <= math.exp(max(one + two)) * (1 + 1e-9)


@given(logs)
def test_swapping_the_legs_inverts_a_case(one: list[float]) -> None:
    there, back = interval(one), interval([-log for log in one])
    assert back.mid == pytest.approx(1 / there.mid)


@given(logs, st.floats(-2, 2))
def test_a_factor_on_all_pairs_is_a_factor_on_the_interval(one: list[float], factor: float) -> None:
    before, after = interval(one), interval([log + factor for log in one])
    scale = math.exp(factor)
    assert (after.low, after.mid, after.high) == pytest.approx(
        (before.low * scale, before.mid * scale, before.high * scale)
    )


@given(logs, st.floats(0.01, 1))
def test_weights_need_not_sum_to_one(one: list[float], weight: float) -> None:
    pairs = tuple(one)
    assert together({"a": Pairs(weight, pairs)}).mid == pytest.approx(interval(one).mid)


def test_noise_is_the_far_end_of_the_interval() -> None:
    assert noise_of({"a": same(1)}) == Noise(0, 0)
    slow = noise_of({"a": same(0.8)})
    assert slow.fraction == pytest.approx(0.25)  # one leg of the same kernel took 1.25 times as long


def test_noise_falls_with_the_number_of_pairs() -> None:
    few, many = (noise_of(drawn(1, 0.05, pairs, seed=1)) for pairs in (6, 600))
    assert many.fraction < few.fraction / 3
    assert many.sigma < few.sigma / 3


@given(st.floats(0, 1), st.floats(0, 0.5), st.floats(0, 0.5), st.integers(1, 1000))
def test_what_is_needed_grows_with_noise_and_tries(fraction: float, own: float, sigma: float, tries: int) -> None:
    noise = Noise(fraction, own)
    assert needed(noise, sigma, 1) == pytest.approx(1 + fraction)
    assert needed(noise, sigma, tries + 1) >= needed(noise, sigma, tries) >= 1
    assert needed(Noise(fraction + 0.1, own), sigma, tries) > needed(noise, sigma, tries)


def test_a_hundred_tries_cost_three_standard_errors() -> None:
    assert needed(Noise(0, 0.01), 0.0, 100) == pytest.approx(math.exp(0.01 * 3.035), rel=1e-3)
    with pytest.raises(ValueError, match="counts as one"):
        needed(QUIET, 0.0, 0)


@pytest.mark.parametrize(
    ("speedup", "outcome", "detector"),
    [
        (Interval(1.5, 1.6, 1.7), "PASS", None),
        (Interval(1.01, 1.1, 1.2), "UNKNOWN", "noise"),  # more pairs might show it
        (Interval(0.99, 1.0, 1.1), "FAIL", "noise"),
        (Interval(0.5, 0.6, 0.7), "FAIL", "slower"),
        (Interval(0.9, 0.97, 0.99), "FAIL", "noise"),  # within 2 % of 1 nothing is said to be slower
    ],
)
def test_decisions(speedup: Interval, outcome: str, detector: str | None) -> None:
    decision = decide(speedup, QUIET, 0.0, 1, "stock")
    assert (decision.outcome, decision.detector) == (outcome, detector)
    assert "stock" in decision.detail
    assert "1.020x" in decision.detail


@pytest.mark.parametrize(
    ("noise", "speedup", "outcome", "detector"),
    [
        (0.49, Interval(1.1, 1.3, 1.9), "FAIL", "noise"),
        (0.5, Interval(1.1, 1.3, 1.9), "UNKNOWN", "noise"),
        (14.7, Interval(0.7, 1.1, 9.0), "UNKNOWN", "noise"),
        (0.5, Interval(0.4, 0.5, 0.6), "FAIL", "slower"),
        (0.5, Interval(1.6, 1.8, 2.0), "PASS", None),
    ],
)
def test_where_noise_is_hopeless_nothing_is_failed_for_it(
    noise: float, speedup: Interval, outcome: str, detector: str | None
) -> None:
    decision = decide(speedup, Noise(noise, 0.0), 0.0, 1, "stock")
    assert (decision.outcome, decision.detector) == (outcome, detector)


def test_what_passes_as_the_first_try_may_not_as_the_hundredth() -> None:
    speedup = Interval(1.03, 1.05, 1.07)
    assert decide(speedup, QUIET, 0.0, 1, "stock").outcome == "PASS"
    assert decide(speedup, QUIET, 0.0, 100, "stock").outcome == "UNKNOWN"


@pytest.mark.parametrize("spread", [0.01, 0.1, 0.4])
@pytest.mark.parametrize("pairs", [6, 20])
def test_the_best_of_many_that_change_nothing_is_not_promoted(spread: float, pairs: int) -> None:
    for lane in range(10):
        noise = noise_of(drawn(1, spread, pairs, seed=1000 * lane))
        for tries in range(1, 21):
            timed = drawn(1, spread, pairs, seed=1000 * lane + tries)
            decision = decide(together(timed), noise, standard_error(timed), tries, "stock")
            retimed = drawn(1, spread, pairs, seed=1000 * lane + 500 + tries)
            again = decide(together(retimed), noise, standard_error(retimed), tries, "stock")
            assert "PASS" not in (decision.outcome, again.outcome) or decision.outcome != again.outcome


@pytest.mark.parametrize("spread", [0.01, 0.1, 0.15])
def test_three_times_as_fast_is_always_promoted(spread: float) -> None:
    for seed in range(50):
        timed = drawn(3, spread, 8, seed)
        noise = noise_of(drawn(1, spread, 8, seed + 1000))
        assert decide(together(timed), noise, standard_error(timed), 40, "parent").outcome == "PASS"


PEAKS = Peaks(
    schema_number=1,
    kind="cpu",
    name="test",
    uuid="",
    torch="2.13.0",
    threads=2,
    measured_at="2026-01-01T00:00:00+00:00",
    flops={"float": 1e11, "double": 5e10},
    copy_bytes_per_s=1e10,
    launch_ns=2000,
    repeats=7,
    spread={},
)


def qr_case(batch: int, n: int, dtype: str = "float32") -> TaskCase:
    return TaskCase("case", 1.0, (ArgSpec((batch, n, n), dtype),), ("reduced",))


def test_the_floor_of_a_qr_is_its_flops_at_twice_the_measured_peak() -> None:
    factor = 2 * (2 - 2 / 3) * 256**3 * 16  # Q too
    assert floor_ns("linalg_qr", qr_case(16, 256), "cpu", PEAKS) == pytest.approx(1e9 * factor / 1e11 / 2)


def test_the_floor_of_what_only_moves_is_its_bytes_at_cache_speed() -> None:
    case = TaskCase("case", 1.0, (ArgSpec((4096, 4096), "float32"),), (-1, False))
    assert floor_ns("_softmax", case, "cpu", PEAKS) == pytest.approx(1e9 * 2 * 4 * 4096**2 / 1e11 / 2)


@pytest.mark.parametrize(("op", "peaks"), [("linalg_qr", None), ("linalg_frobnicate", PEAKS)])
def test_without_peaks_or_a_formula_the_floor_is_what_any_call_takes(op: str, peaks: Peaks | None) -> None:
    assert floor_ns(op, qr_case(16, 256), "cpu", peaks) == CALL_NS["cpu"]
    assert floor_ns(op, qr_case(16, 256), "cuda", peaks) == CALL_NS["cuda"]


@given(st.integers(1, 64), st.integers(1, 256), st.sampled_from(["float32", "float64", "bfloat16", "no such type"]))
def test_a_larger_batch_never_lowers_the_floor(batch: int, n: int, dtype: str) -> None:
    small, large = (floor_ns("geqrf", qr_case(count, n, dtype), "cpu", PEAKS) for count in (batch, 2 * batch))
    assert CALL_NS["cpu"] <= small <= large
