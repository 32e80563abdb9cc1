"""What times and memory of interleaved processes say, with known answers."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.kernels.running.watched import Served, Swaps, Timed
from qrprof.planner.gate.records import Interval
from qrprof.planner.predictions import Prediction
from qrprof.planner.verify.protocol import Round, gain_of, leak, memory_of, word
from qrprof.planner.verify.records import Finding, Gain, Memory
from qrprof.planner.verify.verdict import expected_of, is_held, of_swaps, of_timed, of_times, outcome_of

MIB = 1 << 20
positive = st.floats(1e3, 1e9)


def leg(
    *steps_ns: float, memory: tuple[int, ...] = (), peak: int = 100 * MIB, served: tuple[int, ...] | None = None
) -> Timed:
    calls = (1,) * len(steps_ns) if served is None else served
    return Timed("host clock", tuple(round(ns) for ns in steps_ns), memory, calls, peak, Swaps())


def abba(stock: list[float], swapped: list[float], drift: float = 0.0) -> Round:
    """Four processes of which each is slower than the one before by the fraction `drift` of the stock time."""
    sides = [stock, swapped, swapped, stock]
    legs = [leg(*(ns * (1 + drift * i) for ns in side)) for i, side in enumerate(sides)]
    return Round(legs[0], (legs[1], legs[2]), legs[3])


def noisy(ratio: float, spread: float, rounds: int, steps: int, seed: int = 0) -> list[Round]:
    draw = random.Random(seed)

    def process(ns: float) -> Timed:
        return leg(*(ns * draw.gauss(1, spread) for _ in range(steps)))

    return [Round(process(1e8), (process(1e8 / ratio), process(1e8 / ratio)), process(1e8)) for _ in range(rounds)]


def gain(rounds: list[Round]) -> Gain:
    found = gain_of(rounds)
    assert found is not None
    return found


def test_processes_that_agree_give_their_ratio() -> None:
    found = gain([abba([8e6] * 5, [4e6] * 5)] * 2)
    assert (found.speedup.low, found.speedup.mid, found.speedup.high) == pytest.approx((2, 2, 2))
    assert (found.noise, found.stock_ns, found.swapped_ns) == pytest.approx((0, 8e6, 4e6))
    assert word(found) == "faster"


def test_a_drift_of_the_machine_is_noise_and_no_gain() -> None:
    found = gain([abba([1e6] * 8, [1e6] * 8, drift=0.01)] * 3)
    assert found.speedup.mid == pytest.approx(1)
    assert found.noise == pytest.approx(0.03)
    assert word(found) == "no difference"


def test_rare_slow_steps_count_by_their_time() -> None:
    steps = [1e6] * 9 + [91e6]  # a preconditioner each tenth step
    found = gain([abba(steps, [1e6] * 9 + [1e6])] * 2)
    assert found.speedup.mid == pytest.approx(10)


def periodic(served: tuple[int, ...]) -> Gain:
    """20 steps of which the tenth and the last take nine times as long, half of that with the swaps."""
    stock, swapped = (leg(*([1e6] * 9 + [rare]) * 2, served=served) for rare in (9e6, 4.5e6))
    return gain([Round(stock, (swapped, swapped), stock)])


def test_no_draw_is_without_the_rare_steps() -> None:
    """36 ms against 27."""
    found = periodic(((0,) * 9 + (102,)) * 2)
    assert (found.speedup.low, found.speedup.mid, found.speedup.high) == pytest.approx((36 / 27,) * 3)
    assert word(found) == "faster"


def test_steps_that_nothing_tells_apart_are_drawn_as_they_fall() -> None:
    found = periodic((1,) * 20)
    assert found.speedup.low == pytest.approx(1)
    assert found.speedup.mid == pytest.approx(36 / 27)


def test_one_rare_step_is_as_unsure_as_before() -> None:
    """A draw may be without it."""
    steps = [1e6] * 9
    stock, swapped = (leg(*steps, rare, served=(*[0] * 9, 102)) for rare in (9e6, 4.5e6))
    found = gain([Round(stock, (swapped, swapped), stock)])
    assert (found.speedup.low, found.speedup.mid) == pytest.approx((1, 18 / 13.5))


def test_steps_of_kinds_of_their_own_are_drawn_together() -> None:
    assert periodic(tuple(range(20))).speedup.low == pytest.approx(1)


def test_one_disturbed_process_does_not_decide() -> None:
    rounds = [abba([1e6] * 6, [1e6] * 6) for _ in range(3)]
    rounds[1] = Round(leg(*[9e6] * 6), rounds[1].swapped, rounds[1].last)
    assert gain(rounds).speedup.mid == pytest.approx(1)


def test_a_gain_within_the_noise_is_not_called_one() -> None:
    found = gain(noisy(1.02, 0.3, rounds=2, steps=8))
    assert word(found) == "cannot tell"


def test_what_swapped_processes_differ_by_is_noise_too() -> None:
    slow, fast = leg(*[2e6] * 8), leg(*[1e6] * 8)
    found = gain([Round(slow, (slow, fast), slow)] * 2)
    assert found.noise == pytest.approx(1)
    assert word(found) == "cannot tell"


def test_a_slower_swap_is_called_slower() -> None:
    assert word(gain(noisy(0.5, 0.01, rounds=2, steps=8))) == "slower"


def test_too_few_steps_give_no_figure() -> None:
    assert gain_of([abba([1e6] * 2, [1e6] * 2)]) is None
    assert gain_of([]) is None


@given(st.lists(positive, min_size=3, max_size=9), st.floats(0.1, 10), st.integers(1, 3))
def test_the_interval_holds_the_ratio_of_steps_that_all_gain_alike(
    stock: list[float], ratio: float, rounds: int
) -> None:
    found = gain([abba(stock, [ns / ratio for ns in stock])] * rounds)
    assert found.speedup.low <= found.speedup.mid <= found.speedup.high
    assert found.speedup.mid == pytest.approx(ratio, rel=1e-2)


@given(st.lists(positive, min_size=3, max_size=9), st.lists(positive, min_size=3, max_size=9))
def test_turning_the_sides_round_turns_the_ratio_round(stock: list[float], swapped: list[float]) -> None:
    steps = min(len(stock), len(swapped))
    there, back = gain([abba(stock[:steps], swapped[:steps])]), gain([abba(swapped[:steps], stock[:steps])])
    assert there.speedup.mid * back.speedup.mid == pytest.approx(1)
    assert there.speedup.low * back.speedup.high == pytest.approx(1, rel=1e-6)


# --- memory


def rounds_holding(stock: tuple[int, ...], swapped: tuple[int, ...]) -> list[Round]:
    steps = [1e6] * len(stock)
    one, other = leg(*steps, memory=stock), leg(*steps, memory=swapped)
    return [Round(one, (other, other), one)]


def test_memory_that_grows_with_each_step_is_a_leak() -> None:
    flat, growing = (100 * MIB,) * 8, tuple((100 + i) * MIB for i in range(8))
    found = leak(memory_of(rounds_holding(flat, growing)), 8)
    assert found == Finding("leak", "memory grows by 1.00 MiB a step with the swaps, stock by 0 B")


def test_memory_that_grows_as_stock_does_is_none() -> None:
    growing = tuple((100 + i) * MIB for i in range(8))
    assert leak(memory_of(rounds_holding(growing, growing)), 8) is None


def test_memory_that_is_taken_once_is_none() -> None:
    flat, once = (100 * MIB,) * 8, (100 * MIB, *(140 * MIB,) * 7)
    assert leak(memory_of(rounds_holding(flat, once)), 8) is None


# --- verdict


def made(low: float, mid: float, high: float, noise: float = 0.01) -> Gain:
    return Gain(1e8, 1e8 / mid, Interval(low, mid, high), noise, 2, 8)


NO_MEMORY = Memory(100 * MIB, 100 * MIB, 0.0, 0.0)


@pytest.mark.parametrize(
    ("gain", "kinds", "outcome"),
    [
        (made(1.2, 1.3, 1.4), [], "keep"),
        (made(0.99, 1.0, 1.01), [], "no difference"),
        (made(0.7, 0.8, 0.9), ["slower"], "harmful"),
        (made(0.8, 1.1, 1.4), ["noise"], "cannot tell"),
        (None, ["too few steps"], "cannot tell"),
    ],
)
def test_the_times_decide_where_nothing_else_speaks_against_it(
    gain: Gain | None, kinds: list[str], outcome: str
) -> None:
    findings = list(of_times(gain, NO_MEMORY))
    assert [one.kind for one in findings] == kinds
    assert outcome_of(findings, gain) == outcome


def test_a_fast_swap_that_is_wrong_is_harmful() -> None:
    assert outcome_of([Finding("no gradient", "")], made(3, 3, 3)) == "harmful"


def test_a_swap_that_serves_nothing_makes_no_difference_and_says_why() -> None:
    (found,) = of_swaps(Swaps((Served("linalg_qr", "CPU", 0, {"shape or dtype": 12}, 0, 0, 0),)))
    assert found == Finding("not engaged", "the swaps served no call: stock served 12 (shape or dtype)")
    assert outcome_of([found], None) == "no difference"


def test_wrong_results_are_named() -> None:
    (found,) = of_swaps(Swaps((Served("linalg_qr", "CPU", 9, {}, 9, 3, 0),)))
    assert found == Finding("wrong results", "3 of 9 checked results of linalg_qr are wrong")


def test_wrong_results_in_the_timed_steps_are_found_too() -> None:
    right = abba([8e6] * 5, [4e6] * 5)
    later = replace(right.swapped[1], swaps=Swaps((Served("linalg_qr", "CPU", 500, {}, 8, 1, 0),)))
    assert of_timed([right]) == []  # that one of them serves no call is no matter
    (found,) = of_timed([right, replace(right, swapped=(right.swapped[0], later))])
    assert found == Finding("wrong results", "1 of 8 checked results of linalg_qr are wrong")


def test_a_promise_is_held_where_the_intervals_meet() -> None:
    made_then = Prediction(
        run_id="r",
        source="rank",
        scenario="",
        basis="measured",
        device="",
        version="",
        id=7,
        made_at="",
        base_ns=100,
        low_ns=50,
        mid_ns=None,
        high_ns=80,
    )
    expected = expected_of(made_then)
    assert (expected.speedup.low, expected.speedup.high) == pytest.approx((1.25, 2))
    assert is_held(expected, made(1.2, 1.25, 1.3))
    assert not is_held(expected, made(1.0, 1.1, 1.2))
