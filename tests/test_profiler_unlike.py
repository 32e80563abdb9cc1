"""Why recorded steps do not fit the unprofiled ones: what is said, and that what is advised helps."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.profiler.runinfo import Block, RecordedStep, RunInfo, StepKind
from qrprof.profiler.unlike import UNLIKE, cause, longest_stretch

MS = 1_000_000
FIVE = dict.fromkeys(range(24, 29), 0.2)


def run_of(build: Any, *blocks: tuple[int, Sequence[int]], weights: dict[int, float] | None = None) -> RunInfo:
    """A run with unprofiled blocks, each the index of its first step and what its steps took, ms."""
    made = [
        Block(clock="host clock", first_step=first, durations_ns=[ms * MS for ms in times], kinds=["A"] * len(times))
        for first, times in blocks
    ]
    found: RunInfo = build.run((), FIVE if weights is None else weights)
    return found.model_copy(update={"unprofiled": made})


def evaluated(first: int, count: int, period: int, ms: int = 100) -> list[int]:
    return [ms if i % period == 0 else 1 for i in range(first, first + count)]


def test_rare_steps_of_which_none_was_recorded(build: Any) -> None:
    """Of 125 steps those numbered 50 and 100 take 100 ms: 200 of 323 ms."""
    run = run_of(build, (3, [1] * 20), (30, evaluated(30, 105, 50)))
    assert cause([run], 1.5 * MS) == (
        "2 of 125 unprofiled steps hold 61.9 % of the time, and none like them was recorded; "
        "give --steps 50, in a run of 255 steps or more"
    )


def test_a_single_rare_step(build: Any) -> None:
    """Nothing like number 50 came in the 84 steps after it."""
    run = run_of(build, (3, [1] * 20), (30, evaluated(30, 105, 50)[:21] + [1] * 84))
    assert cause([run], 1.5 * MS) == (
        "1 of 125 unprofiled steps holds 44.6 % of the time, and none like it was recorded; if it came once, "
        "--warmup 51 leaves it out, else give --steps 85 or more, in a run of 430 steps or more"
    )


def test_a_kind_of_step_that_was_not_recorded(build: Any) -> None:
    run = run_of(build, (3, [2, 1, 1, 1, 1] * 8))
    kinds = ["B", "A", "A", "A", "A"] * 8
    named = [run.unprofiled[0].model_copy(update={"kinds": kinds})]
    shares = [StepKind(name="A", label="", frequency=0.8), StepKind(name="B", label="", frequency=0.2)]
    run = run.model_copy(update={"unprofiled": named, "kinds": shares})
    assert cause([run], MS).startswith("8 of 40 unprofiled steps hold 33.3 % of the time, and none like them")
    both = [RecordedStep(index=24, kind="A", weight=0.8), RecordedStep(index=25, kind="B", weight=0.2)]
    assert cause([run.model_copy(update={"recorded": both})], MS) == UNLIKE


@pytest.mark.parametrize(
    ("ms", "recorded"),
    [
        ([1] * 125, 0.5),  # all alike
        ([*[1] * 99, 8], 0.5),  # which holds 7 % of the time
        ([1, 1, 1, 10] * 25, 2.0),  # a fourth of the steps: some were recorded
        (evaluated(3, 125, 50), 30.0),  # the recorded step is the longer one: one may be among them
    ],
    ids=["alike", "little time", "not rare", "longer"],
)
def test_what_is_no_rare_step(build: Any, ms: list[int], recorded: float) -> None:
    assert cause([run_of(build, (3, ms))], recorded * MS) == UNLIKE


@pytest.mark.parametrize(
    ("after", "said"), [(137, "took 37.0 % longer than"), (60, "took 40.0 % less than"), (109, UNLIKE), (91, UNLIKE)]
)
def test_steps_that_drift(build: Any, after: int, said: str) -> None:
    found = cause([run_of(build, (3, [100] * 20), (30, [after] * 105))], 300 * MS)
    assert said in found
    assert ("trace again when it is quiet" in found) == (said != UNLIKE)


def test_of_ranks_the_first_that_shows_a_cause(build: Any) -> None:
    steady, rare = run_of(build, (3, [3] * 125)), run_of(build, (3, evaluated(3, 125, 50)))
    assert cause([steady, rare], MS).startswith("2 of 125")
    assert cause([steady, steady], MS) == UNLIKE


@given(st.integers(1, 99), st.integers(0, 98), st.integers(1, 5))
def test_as_many_steps_as_are_advised_hold_a_rare_one(period: int, offset: int, cycles: int) -> None:
    steps = range(3, 3 + period * (cycles + 1))
    marked = [i for i in steps if i % period == offset % period]
    found = longest_stretch(marked, steps)
    assert found == period
    assert all(any(i in marked for i in steps[a : a + found]) for a in range(len(steps) - found + 1))
