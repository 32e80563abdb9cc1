"""Calls of two runs that have other shapes, matched by their order: known answers."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from qrprof.profiler.diff import Diff, Side, diff, side
from qrprof.profiler.trace import Trace

Op = tuple[str, int]  # name, with shapes behind a space where it has some, and ns
Make = Callable[[Sequence[Op]], Side]


@pytest.fixture
def make(build: Any) -> Make:
    """A run on a CPU whose step is these ops one after the other, unprofiled as recorded."""

    def make(ops: Sequence[Op]) -> Side:
        rows, now = [build.mark(0, 0)], 0
        for name, ns in ops:
            key, _, shapes = name.partition(" ")
            rows.append(build.op(key, now, now + ns, shapes=shapes))
            now += ns
        return side(Trace.from_rows([*rows, build.mark(1, now)]), build.run([now] * 5))

    return make


def matmuls(found: Diff) -> set[tuple[str, str, int, int, str]]:
    rows = found.rows[found.rows["key"] == "mm"]
    return set(rows[["shapes", "matched", "a_ns", "b_ns", "change"]].itertuples(index=False, name=None))


# Two matmuls, and one op with most of the time, so that the runs are comparable.
WIDE: list[Op] = [("mm [[8,16],[16,32]]", 400), ("conv", 5000), ("mm [[8,32],[32,4]]", 200)]


def test_calls_with_other_shapes_are_matched_by_order(make: Make) -> None:
    """Half the batch."""
    half: list[Op] = [("mm [[4,16],[16,32]]", 210), ("conv", 5000), ("mm [[4,32],[32,4]]", 250)]
    assert matmuls(diff(make(WIDE), make(half))) == {
        ("[[8,16],[16,32]] -> [[4,16],[16,32]]", "order", 400, 210, "faster"),
        ("[[8,32],[32,4]] -> [[4,32],[32,4]]", "order", 200, 250, "slower"),
    }


def test_what_one_run_calls_more_is_left(make: Make) -> None:
    more: list[Op] = [
        ("conv", 5000),
        ("mm [[4,16],[16,32]]", 210),
        ("mm [[4,32],[32,4]]", 90),
        ("mm [[4,4],[4,4]]", 50),
    ]
    pairs = {
        ("[[8,16],[16,32]] -> [[4,16],[16,32]]", "order", 400, 210, "faster"),
        ("[[8,32],[32,4]] -> [[4,32],[32,4]]", "order", 200, 90, "faster"),
    }
    assert matmuls(diff(make(WIDE), make(more))) == {*pairs, ("[[4,4],[4,4]]", "", 0, 50, "new")}
    assert ("[[4,4],[4,4]]", "", 50, 0, "gone") in matmuls(diff(make(more), make(WIDE)))


def test_the_same_shapes_are_matched_first_in_whatever_order(make: Make) -> None:
    turned: list[Op] = [("mm [[8,32],[32,4]]", 200), ("mm [[4,4],[4,4]]", 390), ("conv", 5000)]
    assert matmuls(diff(make(WIDE), make(turned))) == {
        ("[[8,32],[32,4]]", "shape", 200, 200, "no change"),
        ("[[8,16],[16,32]] -> [[4,4],[4,4]]", "order", 400, 390, "faster"),
    }


def test_the_order_is_that_of_the_first_calls(make: Make) -> None:
    """Not of the times, the shapes or the last calls: each run has its own order."""
    turned: list[Op] = [("mm [[4,32]]", 90), ("mm [[4,16]]", 100), ("conv", 5000), ("mm [[4,32]]", 500)]
    found = diff(make(WIDE), make(turned))
    assert matmuls(found) == {
        ("[[8,16],[16,32]] -> [[4,32]]", "order", 400, 590, "slower"),
        ("[[8,32],[32,4]] -> [[4,16]]", "order", 200, 100, "faster"),
    }
    assert found.rows.query("a_ns == 400")[["calls_a", "calls_b"]].to_numpy().tolist() == [[1, 2]]


def test_the_order_is_that_within_a_step(build: Any, make: Make) -> None:
    """The first recorded step lacks what comes first in the second."""
    rows = [
        build.mark(0, 0),
        build.op("conv", 0, 9000),
        build.op("mm", 9000, 9100, shapes="[[2]]"),
        build.mark(1, 10000),
    ]
    rows += [build.op("mm", 10000, 10100, shapes="[[1]]"), build.op("conv", 10100, 18900)]
    rows += [build.op("mm", 19000, 19100, shapes="[[2]]"), build.mark(2, 20000)]
    found = diff(side(Trace.from_rows(rows), build.run([10000] * 5)), make(WIDE))
    pairs = {"[[1]] -> [[8,16],[16,32]]", "[[2]] -> [[8,32],[32,4]]"}
    assert {shapes for shapes, *_ in matmuls(found)} == pairs


def test_shapes_that_were_not_recorded_have_no_order(make: Make) -> None:
    found = diff(make(WIDE), make([("mm", 600), ("conv", 5000)]))
    assert {matched for _, matched, *_ in matmuls(found)} == {""}
    assert len(matmuls(found)) == 3


def test_on_a_device_the_order_is_that_of_the_calls(build: Any) -> None:
    """The device runs the second launch first."""

    def one(*shapes: str) -> Side:
        rows = [build.mark(0, 0), build.op("conv", 0, 100), build.launch(1, 10, 20), build.kernel("conv", 30, 5000, 1)]
        for number, shape in enumerate(shapes, start=2):
            start = 100 * number
            rows += [build.op("mm", start, start + 50, shapes=shape), build.launch(number, start, start + 10)]
            rows += [build.kernel(f"mm{shape}", 9000 - start, 9050 - start, number)]
        return side(Trace.from_rows([*rows, build.mark(1, 10000)]), build.run([10000] * 5))

    found = diff(one("[[8]]", "[[9]]"), one("[[7]]", "[[6]]"))
    assert {shapes for shapes, *_ in matmuls(found)} == {"[[8]] -> [[7]]", "[[9]] -> [[6]]"}


def test_what_is_matched_by_order_is_not_alike(make: Make) -> None:
    found = diff(make(WIDE), make([("mm [[4,16],[16,32]]", 400), ("conv", 5000), ("mm [[4,32],[32,4]]", 200)]))
    assert found.comparability == pytest.approx(10000 / 11200)
    others = diff(make([("mm [[8,8]]", 500)]), make([("mm [[4,4]]", 500)]))
    assert others.comparability == 0
    assert (others.withheld or "").startswith("only 0.0 % of their time in ops")
