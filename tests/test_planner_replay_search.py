"""Where a function is zero: such as a replay meets, made of pieces that shrink and stop shrinking."""

from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from qrprof.planner.replay.search import zero_of

LEAST = 0.3  # of a piece stays
NEAR = 1e-8  # of the sum


def shrunk(pieces: list[float], total: float) -> Callable[[float], float]:
    return lambda value: sum(max(piece - value, LEAST * piece) for piece in pieces) - total


@given(
    pieces=st.lists(st.floats(1.0, 1e6), min_size=1, max_size=40),
    share=st.floats(LEAST * (1 + 1e-6), 1.0),
)
@example(pieces=[1.0, 9.0], share=0.3001)  # flat from 0.7 of its domain on, and there off by a three-thousandth
def test_what_shrinks_by_the_same_is_met_wherever_it_stops(pieces: list[float], share: float) -> None:
    total = share * sum(pieces)
    off = shrunk(pieces, total)
    found = zero_of(off, 0.0, max(pieces), NEAR * total)
    assert found is not None
    assert abs(off(found)) <= NEAR * total


def test_it_is_one_of_the_ends_where_that_is_near() -> None:
    assert zero_of(lambda x: x, 0.0, 1.0, 1e-9) == 0.0
    assert zero_of(lambda x: x - 1, 0.0, 1.0, 1e-9) == 1.0


def test_there_is_none_where_both_ends_have_one_sign() -> None:
    assert zero_of(lambda x: x + 1, 0.0, 1.0, 1e-9) is None
