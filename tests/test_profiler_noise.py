"""Within-run and run-to-run noise."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.profiler.nesting import Floats
from qrprof.profiler.noise import Noise, drift, frequency, lasting_drift, of_run, run_to_run, within_run
from qrprof.profiler.runinfo import Block, RunInfo, StepKind


def block(durations: Sequence[int], kinds: str = "A") -> Block:
    names = [kinds[i % len(kinds)] for i in range(len(durations))]
    return Block(clock="host clock", first_step=0, durations_ns=list(durations), kinds=names)


def noise_of(*blocks: Block) -> float:
    noise = within_run(blocks, {})
    assert noise is not None
    return noise.fraction


def of_means(draw: Callable[[np.random.Generator], Floats]) -> float:
    """Half the 95 % interval of the mean of many runs, over their mean: what a run's noise should say."""
    rng = np.random.default_rng(2)
    means = [float(draw(rng).mean()) for _ in range(4000)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(high - low) / 2 / float(np.mean(means))


def test_steady_steps_have_no_noise() -> None:
    assert within_run([block([100] * 10)], {}) == Noise("within-run", 0.0)


def test_fewer_than_five_steps_say_nothing() -> None:
    assert within_run([block([100, 110, 90, 100])], {}) is None
    assert within_run([], {}) is None


def test_a_pattern_of_kinds_is_not_noise() -> None:
    assert within_run([block([100, 100, 100, 500] * 6, kinds="AAAB")], {}) == Noise("within-run", 0.0)


# 100 steps of 100, some of them 100 longer. How many of these a resample holds is Poisson's to tell, nearly.
@pytest.mark.parametrize(
    ("long", "most"),  # 2.5 % and 97.5 % of a Poisson distribution around `long`: 0 and `most`
    [(1, 3), (2, 5), (3, 7)],
)
def test_rare_long_steps_are_noise_of_the_mean(long: int, most: int) -> None:
    durations = [10_000 if i % 33 == 7 and i < 33 * long else 100 for i in range(100)]
    assert noise_of(block(durations)) == pytest.approx(most / 2 * 99 / (100 + 99 * long), rel=0.12)


def test_steps_of_two_sizes_move_the_mean_as_far_as_many_runs_do() -> None:
    """A median lies in one of the two sizes, and its interval holds both."""

    def two_sizes(rng: np.random.Generator) -> Floats:
        return rng.choice([5e6, 85e6], 125)

    noises = [noise_of(block(two_sizes(np.random.default_rng(seed)).astype(int).tolist())) for seed in range(20)]
    assert np.mean(noises) == pytest.approx(of_means(two_sizes), rel=0.15)


def test_sizes_that_alternate_move_the_mean_less() -> None:
    rng = np.random.default_rng(1)
    durations = (np.tile([1.5e6, 31e6], 60) * rng.normal(1, 0.05, 120)).astype(int)
    assert noise_of(block(durations.tolist())) < 0.02
    assert noise_of(block(rng.permutation(durations).tolist())) > 0.1


def test_steps_that_are_like_those_before_them_move_the_mean_more() -> None:
    durations = np.repeat(np.random.default_rng(1).normal(1e6, 2e5, 32), 4).astype(int)  # each four times
    shuffled = np.random.default_rng(1).permutation(durations)
    # Only a quarter of the values is independent: the mean moves twice as far.
    assert noise_of(block(durations.tolist())) == pytest.approx(2 * noise_of(block(shuffled.tolist())), rel=0.3)


def test_kinds_weigh_as_often_as_the_run_says() -> None:
    """Half the unprofiled steps are of the kind that moves, but only a tenth of the run's."""
    durations = [value for moved in (300, 500, 700, 400, 600, 450, 550, 650, 350, 500) for value in (100, moved)]
    blocks, rare = [block(durations, kinds="AB")], {"A": 0.9, "B": 0.1}
    half, tenth = within_run(blocks, {}), within_run(blocks, rare)
    assert half is not None
    assert tenth is not None
    # Means of 300 and 140; B's share of what moves is 0.5 and 0.1.
    assert tenth.fraction * 140 / 0.1 == pytest.approx(half.fraction * 300 / 0.5)
    assert half.fraction > 0.05


def test_a_runs_noise_is_that_of_its_step(build: Any) -> None:
    run: RunInfo = build.run()
    kinds = [StepKind(name="A", label="", frequency=0.75), StepKind(name="B", label="", frequency=0.25)]
    blocks = [block([100, 90, 110, 100, 800, 1000, 1200, 1000], kinds="AAAABBBB")]
    run = run.model_copy(update={"kinds": kinds, "unprofiled": blocks})
    assert frequency(run) == {"A": 0.75, "B": 0.25}
    assert run.step_ns() == 325
    assert of_run(run) == within_run(blocks, {"A": 0.75, "B": 0.25}) != within_run(blocks, {})


@given(st.lists(st.integers(1, 10**9), min_size=5, max_size=60), st.integers(1, 1000))
def test_any_noise_is_finite_and_of_the_step(durations: list[int], factor: int) -> None:
    noise = noise_of(block(durations))
    assert 0 <= noise < math.inf
    assert noise_of(block([ns * factor for ns in durations])) == pytest.approx(noise, abs=1e-9)
    assert (noise == 0) == (len(set(durations)) == 1) or len(durations) % 2 == 0


def test_the_same_durations_give_the_same_noise_and_the_interval_shrinks_with_more_steps() -> None:
    durations = np.random.default_rng(1).normal(1e6, 5e4, 400).astype(int).tolist()
    few, many = noise_of(block(durations[:20])), noise_of(block(durations))
    assert noise_of(block(durations)) == many
    # The standard error of a mean of 400 normal values is 5 % / 20 = 0.25 %; 1.96 of it: 0.49 %.
    assert many == pytest.approx(0.0049, rel=0.25)
    assert few > many


# --- drift


def test_half_of_the_drift_between_the_blocks_where_that_is_more() -> None:
    assert noise_of(block([100] * 20), block([120] * 20)) == pytest.approx(10 / 110)


def test_blocks_with_other_mixes_of_kinds_do_not_drift() -> None:
    first, last = block([1] * 6 + [10] * 4, kinds="AAAAAABBBB"), block([1] * 4 + [10] * 6, kinds="AAAABBBBBB")
    assert drift([first, last], {}) == 0
    assert within_run([first, last], {}) == Noise("within-run", 0.0)
    assert drift([block([1] * 10), block([1] * 9 + [10], kinds="AAAAAAAAAB")], {}) == 0


def test_kinds_weigh_the_same_in_both_ends_of_a_drift() -> None:
    first, last = block([10, 100, 100], kinds="ABB"), block([10, 10, 200], kinds="AAB")
    assert drift([first, last], {}) == pytest.approx(105 / 55 - 1)
    assert drift([first, last], {"A": 0.9, "B": 0.1}) == pytest.approx(29 / 19 - 1)


def test_drift_is_signed_and_of_the_means() -> None:
    assert drift([block([100] * 10), block([80] * 10)], {}) == pytest.approx(-0.2)
    assert drift([block([5, 85] * 10 + [85]), block([5, 85] * 10 + [5])], {}) == pytest.approx(905 / 985 - 1)
    assert drift([block([100] * 10)], {}) == 0


def test_a_drift_lasts_where_it_is_more_than_chance() -> None:
    steady, slower = block([98, 102, 101, 99] * 5), block([118, 122, 121, 119] * 5)
    assert lasting_drift([steady, slower], {}) == pytest.approx(0.2)
    assert lasting_drift([slower, steady], {}) == pytest.approx(-1 / 6)
    with_a_long_step = block([98, 102, 101, 99] * 4 + [98, 102, 5000, 99])
    assert drift([steady, with_a_long_step], {}) > 2
    assert lasting_drift([steady, with_a_long_step], {}) == 0


def test_too_few_steps_do_not_tell_a_drift_from_chance() -> None:
    assert lasting_drift([block([100] * 4), block([200] * 40)], {}) == 0
    assert lasting_drift([block([100] * 40)], {}) == 0


# --- runs


def test_run_to_run_is_half_the_range_of_the_means() -> None:
    noise = run_to_run([[100, 100, 100], [110], [103, 105]])
    assert noise is not None
    assert noise.name == "run-to-run"
    assert noise.fraction == pytest.approx(5 / 104)


def test_one_run_has_no_run_to_run_noise() -> None:
    assert run_to_run([[100, 101]]) is None
    assert run_to_run([[100, 101], []]) is None
    assert run_to_run([]) is None
