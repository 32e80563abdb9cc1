"""Within-run and run-to-run noise."""

import numpy as np
import pytest

from qrprof.profiler.noise import Noise, run_to_run, within_run


def test_steady_steps_have_no_noise() -> None:
    assert within_run([100] * 10) == Noise("within-run", 0.0)


def test_fewer_than_five_groups_say_nothing() -> None:
    assert within_run([100, 110, 90, 100]) is None
    assert within_run([1, 2] * 4 + [1], period=2) is None
    assert within_run([1, 2] * 5, period=2) is not None
    assert within_run([]) is None


def test_a_pattern_is_not_noise_when_its_period_is_known() -> None:
    durations = [100, 100, 100, 500] * 6
    assert within_run(durations, period=4) == Noise("within-run", 0.0)


def test_an_incomplete_last_group_is_left_out() -> None:
    assert within_run([10, 30] * 5 + [1000], period=2) == Noise("within-run", 0.0)


def test_half_of_the_95_percent_interval_over_the_median() -> None:
    # Of five values the median of a resample is each of them with a known probability: the smallest with
    # sum over k >= 3 of C(5, k) (1/5)^k (4/5)^(5-k) = 5.8 %, so 2.5 % and 97.5 % lie at the extremes.
    noise = within_run([90, 95, 100, 105, 110])
    assert noise is not None
    assert noise.fraction == pytest.approx(0.1)


def test_the_same_durations_give_the_same_noise_and_the_interval_shrinks_with_more_steps() -> None:
    durations = np.random.default_rng(1).normal(1e6, 5e4, 400).astype(int).tolist()
    few, many = within_run(durations[:20]), within_run(durations)
    assert few is not None
    assert many is not None
    assert within_run(durations) == many
    # The standard error of a median of 400 normal values is 1.2533 * 5 % / 20 = 0.31 %; 1.96 of it: 0.61 %.
    assert many.fraction == pytest.approx(0.0061, rel=0.35)
    assert few.fraction > many.fraction


def test_run_to_run_is_half_the_range_of_the_medians() -> None:
    noise = run_to_run([[100, 100, 900], [110], [104, 104]])
    assert noise is not None
    assert noise.name == "run-to-run"
    assert noise.fraction == pytest.approx(5 / 104)


def test_one_run_has_no_run_to_run_noise() -> None:
    assert run_to_run([[100, 101]]) is None
    assert run_to_run([[100, 101], []]) is None
    assert run_to_run([]) is None
