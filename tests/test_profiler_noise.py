"""Within-run and run-to-run noise."""

from collections.abc import Sequence

import numpy as np
import pytest

from qrprof.profiler.noise import Noise, drift, run_to_run, within_run
from qrprof.profiler.runinfo import Block


def block(durations: Sequence[int], kinds: str = "A") -> Block:
    names = [kinds[i % len(kinds)] for i in range(len(durations))]
    return Block(clock="host clock", first_step=0, durations_ns=list(durations), kinds=names)


def test_steady_steps_have_no_noise() -> None:
    assert within_run([block([100] * 10)]) == Noise("within-run", 0.0)


def test_fewer_than_five_steps_say_nothing() -> None:
    assert within_run([block([100, 110, 90, 100])]) is None
    assert within_run([]) is None


def test_a_pattern_of_kinds_is_not_noise() -> None:
    assert within_run([block([100, 100, 100, 500] * 6, kinds="AAAB")]) == Noise("within-run", 0.0)


def test_kinds_weigh_as_often_as_they_occur() -> None:
    # The rare kind moves from 400 to 600 about 500: three quarters of the steps are 100, so the step is 200.
    # Of five values a resample's median is the least or the greatest with 5.8 % each: the interval is 400 to 600.
    noise = within_run([block([100, 100, 100, 400, 100, 100, 100, 450, 100, 100, 100, 500,
                               100, 100, 100, 550, 100, 100, 100, 600], kinds="AAAB")])  # fmt: skip
    assert noise is not None
    assert noise.fraction == pytest.approx(100 / 4 / 200)


def test_half_of_the_95_percent_interval_over_the_median() -> None:
    # Of five values the median of a resample is each of them with a known probability: the smallest with
    # sum over k >= 3 of C(5, k) (1/5)^k (4/5)^(5-k) = 5.8 %, so 2.5 % and 97.5 % lie at the extremes.
    noise = within_run([block([90, 95, 100, 105, 110])])
    assert noise is not None
    assert noise.fraction == pytest.approx(0.1)


def test_half_of_the_drift_between_the_blocks_where_that_is_more() -> None:
    noise = within_run([block([100] * 20), block([120] * 20)])
    assert noise is not None
    assert noise.fraction == pytest.approx(0.1)


def test_blocks_with_other_mixes_of_kinds_do_not_drift() -> None:
    first, last = block([1] * 6 + [10] * 4, kinds="AAAAAABBBB"), block([1] * 4 + [10] * 6, kinds="AAAABBBBBB")
    assert drift([first, last]) == 0
    assert within_run([first, last]) == Noise("within-run", 0.0)
    assert drift([block([1] * 10), block([1] * 9 + [10], kinds="AAAAAAAAAB")]) == 0


def test_drift_is_signed() -> None:
    assert drift([block([100] * 10), block([80] * 10)]) == pytest.approx(-0.2)
    assert drift([block([100] * 10)]) == 0


def test_the_same_durations_give_the_same_noise_and_the_interval_shrinks_with_more_steps() -> None:
    durations = np.random.default_rng(1).normal(1e6, 5e4, 400).astype(int).tolist()
    few, many = within_run([block(durations[:20])]), within_run([block(durations)])
    assert few is not None
    assert many is not None
    assert within_run([block(durations)]) == many
    # The standard error of a median of 400 normal values is 1.2533 * 5 % / 20 = 0.31 %; 1.96 of it: 0.61 %.
    assert many.fraction == pytest.approx(0.0061, rel=0.35)
    assert few.fraction > many.fraction


def test_run_to_run_is_half_the_range_of_the_means() -> None:
    noise = run_to_run([[100, 100, 100], [110], [103, 105]])
    assert noise is not None
    assert noise.name == "run-to-run"
    assert noise.fraction == pytest.approx(5 / 104)


def test_one_run_has_no_run_to_run_noise() -> None:
    assert run_to_run([[100, 101]]) is None
    assert run_to_run([[100, 101], []]) is None
    assert run_to_run([]) is None
