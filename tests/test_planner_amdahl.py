import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.amdahl import ceiling_x, speedup_x

TIMES = st.floats(min_value=1e-3, max_value=1e15)
SHARES = st.floats(min_value=0, max_value=1)


@pytest.mark.parametrize(("total", "part", "expected"), [(100, 0, 1.0), (100, 50, 2.0), (100, 90, 10.0), (80, 60, 4.0)])
def test_ceiling(total: float, part: float, expected: float) -> None:
    assert ceiling_x(total, part) == expected


def test_without_the_whole_step_nothing_is_left() -> None:
    assert math.isinf(ceiling_x(7, 7))


def test_speedup() -> None:
    assert speedup_x(100, 80, 20) == 2.5
    assert speedup_x(100, 80, 80) == 1
    assert speedup_x(100, 50, 150) == 0.5  # a slower part is a slower step


@pytest.mark.parametrize("arguments", [(0, 0, 0), (10, -1, 0), (10, 11, 0), (10, 5, -1), (10, math.nan, 0)])
def test_no_such_step(arguments: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="step"):
        speedup_x(*arguments)


@given(TIMES, SHARES, SHARES)
def test_speedup_lies_between_none_and_the_ceiling(total: float, share: float, kept: float) -> None:
    part = total * share
    assert 1 - 1e-9 <= speedup_x(total, part, part * kept) <= ceiling_x(total, part)


@given(TIMES, SHARES, SHARES, SHARES)
def test_a_faster_part_is_never_a_slower_step(total: float, share: float, a: float, b: float) -> None:
    part = total * share
    assert speedup_x(total, part, part * min(a, b)) >= speedup_x(total, part, part * max(a, b))


@given(TIMES, SHARES, SHARES)
def test_a_larger_part_has_a_higher_ceiling(total: float, a: float, b: float) -> None:
    assert ceiling_x(total, total * max(a, b)) >= ceiling_x(total, total * min(a, b))
