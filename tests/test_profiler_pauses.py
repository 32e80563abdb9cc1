"""Whom a host's own work is blamed on where a few pauses at one place hold most of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

MS = 1_000_000
STEP = "Optimizer.step#Adam.step"


def host(parts: Any) -> dict[tuple[str, str], float]:
    """ms of the host's own work in a mean step, by whom it is blamed on and phase."""
    rows = parts.rows[parts.rows["key"] == "gap:host"]
    sums = rows.groupby(["op", "phase"])["recorded_ns"].sum() / MS
    return {place: ms for place, ms in sums.to_dict().items() if ms > 0}


def stepping(build: Any, *rows: Any) -> Any:
    """Two steps of 20 ms: the optimizer's step ends 1 ms into each, `rows` follow, and the next step ends it."""
    both = [
        {**row, "start": row["start"] * MS + after, "end": row["end"] * MS + after}
        for after in (0, 20 * MS)
        for row in (*rows, build.note(STEP, 19, 21))
    ]
    marks = [build.mark(number, 20 * MS * number) for number in range(3)]
    return build.divide([build.note(STEP, -1 * MS, MS), *marks, *both], build.run())


def test_a_slow_generator_lies_between_the_optimizer_and_the_first_op(build: Any) -> None:
    parts = stepping(build, build.op("aten::full", 11, 15), build.op("aten::mm", 16, 18))
    assert host(parts) == {
        (f"a pause between {STEP} and aten::full", "forward"): 10,
        ("", "forward"): 2,
        (STEP, "optimizer"): 2,
    }


def test_a_pause_between_ops_of_one_phase_is_of_that_phase(build: Any) -> None:
    parts = stepping(build, build.op("aten::mm", 1, 4), build.op("aten::relu", 16, 19))
    assert host(parts)["a pause between aten::mm and aten::relu", "forward"] == 12


def test_a_pause_has_the_phase_of_any_other_work_of_the_host(build: Any) -> None:
    """Which is what two runs are compared by: in one of them the pause may be too short to be told."""
    node = build.op("autograd::engine::evaluate_function: MulBackward0", 2, 4)
    rows = [build.op("aten::mm", 1, 2), node, build.op("aten::view", 3, 4)]
    parts = stepping(build, *rows)
    assert host(parts) == {(f"a pause between MulBackward0 and {STEP}", "forward"): 15, (STEP, "optimizer"): 2}
    untold = stepping(build, *rows, *(build.op(f"aten::{at}", at, at + 1) for at in range(6, 18, 3)))
    assert host(untold) == {("", "forward"): 11, (STEP, "optimizer"): 2}


@pytest.mark.parametrize("steps", [1, 2])
def test_what_follows_the_last_step_is_the_recorders_own(build: Any, steps: int) -> None:
    """Boundaries that lie behind the pause, as those of a range that begins once its data are there."""
    rows = []
    for step in range(steps):
        begin = 20 * MS * step
        rows += [build.mark(step, begin), build.op("aten::mm", begin + MS, begin + 5 * MS)]
    end = 20 * MS * steps
    rows += [build.mark(steps, end), build.op("aten::ones", end + 1000, end + MS)]
    place = "aten::mm and " + ("the end of the last step" if steps == 1 else "aten::mm")
    assert host(build.divide(rows, build.run()))[f"a pause between {place}", "forward"] == 15


def test_a_pause_is_told_by_the_annotation_around_it(build: Any) -> None:
    parts = stepping(build, build.note("augment", 2, 12), build.op("aten::mm", 12, 19))
    assert host(parts)["a pause in augment", "forward"] == 10


def test_pauses_at_one_place_count_together(build: Any) -> None:
    """Each of four micro-batches waits for its data."""
    ops = [build.op("aten::full", start, start + 1) for start in (4, 8, 12, 16)]
    parts = stepping(build, *ops)
    assert host(parts)["a pause between aten::full and aten::full", "forward"] == 9


@pytest.mark.parametrize(
    "ops",
    [
        [("aten::a", 6, 7), ("aten::b", 12, 13)],  # 5, 5 and 6 ms at three places
        [(f"aten::{n % 2}", 1 + n, 2 + n) for n in range(0, 18, 2)],  # 1 ms between many ops
    ],
    ids=["several places", "many pauses"],
)
def test_work_at_several_places_has_none(build: Any, ops: list[tuple[str, int, int]]) -> None:
    places = {place for place, _ in host(stepping(build, *(build.op(*op) for op in ops)))}
    assert places == {"", STEP}


def test_what_takes_microseconds_is_the_framework(build: Any) -> None:
    rows = [build.mark(0, 0), build.op("aten::mm", 0, 10_000), build.op("aten::mm", 100_000, 110_000)]
    parts = build.divide([*rows, build.mark(1, 110_000)], build.run())
    assert host(parts) == {("", "forward"): 0.09}


@given(st.lists(st.tuples(st.integers(0, 3 * MS), st.sampled_from("abc")), min_size=1, max_size=12))
def test_a_place_holds_at_least_half_and_no_time_is_lost(build: Any, pauses: list[tuple[int, str]]) -> None:
    rows, now = [build.mark(0, 0)], 0
    for ns, name in pauses:
        rows.append(build.op(name, now + ns, now + ns + 1000))
        now += ns + 1000
    found = host(build.divide([*rows, build.mark(1, now)], build.run()))
    assert sum(found.values()) == pytest.approx(sum(ns for ns, _ in pauses) / MS)
    places = {place for place, _ in found} - {""}
    assert len(places) <= 1
    for place in places:
        told = sum(ms for key, ms in found.items() if key[0] == place)
        assert told >= 0.5 * sum(found.values()) * (1 - 1e-9)
