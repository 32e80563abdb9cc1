import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.estimate import Basis, Estimate, ceiling

TIMES = st.floats(min_value=0, max_value=1e15)


@pytest.mark.parametrize(
    ("low", "mid", "high"), [(2, 1, 3), (1, 4, 3), (3, None, 2), (-1, 0, 1), (math.nan, None, 1), (0, math.nan, 1)]
)
def test_the_order_is_checked(low: float, mid: float | None, high: float) -> None:
    with pytest.raises(ValueError, match="not an interval"):
        Estimate(low, mid, high, Basis.ROOFLINE)


def test_what_is_left_becomes_what_is_saved() -> None:
    assert Estimate(2, 5, 7, Basis.ROOFLINE).off(10) == Estimate(3, 5, 8, Basis.ROOFLINE)


def test_a_ceiling_has_no_middle() -> None:
    assert ceiling(10) == Estimate(0, None, 10, Basis.CEILING)
    assert ceiling(10).off(10) == ceiling(10)


@given(st.tuples(TIMES, TIMES, TIMES, TIMES))
def test_a_saving_is_an_interval_inside_the_total(times: tuple[float, ...]) -> None:
    low, mid, high, total = sorted(times)
    saved = Estimate(low, mid, high, Basis.ROOFLINE).off(total)
    assert 0 <= saved.low <= saved.high <= total
