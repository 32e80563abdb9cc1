"""The beam: the fastest, unlike one another; who was made from whom; how long nothing better came."""

from dataclasses import replace

import pytest
from gate_tasks import case, task
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.gate.records import Interval, Outcome
from qrprof.planner.optimize.beam import best, lineage, parents, since_better, unlike
from qrprof.planner.optimize.lanes import split
from qrprof.planner.optimize.records import Candidate, Proposal

ONE_LANE = split(task("mm", case((8, 8))))
TWO_LANES = split(task("mm", case((4, 8, 8)), case((4, 64, 64))))


def candidate(number: int, over: float | None, outcome: Outcome = "PASS", **fields: object) -> Candidate:
    """Its file is unlike any other's."""
    lines = "\n".join(f"line {line} of {number}" for line in range(9))
    given = {"source": lines, "parent": None, "changed": "", **fields}
    lane, cases = str(given.pop("lane", "")), given.pop("cases", {})
    speed = None if over is None else Interval(over, over, over)
    proposal = Proposal(**given)  # type: ignore[arg-type]
    return Candidate(number, f"sha{number}", proposal, "preview", outcome, speed, "", lane=lane, cases=cases)  # type: ignore[arg-type]


def numbers(found: tuple[tuple[Candidate, ...], ...]) -> list[list[int]]:
    return [[one.number for one in lane] for lane in found]


def test_the_fastest_are_kept_the_best_first_and_none_that_failed() -> None:
    some = [candidate(1, 1.1), candidate(2, 3.0), candidate(3, 9.0, "FAIL"), candidate(4, None), candidate(5, 2.0)]
    assert numbers(parents(some, ONE_LANE, 2)) == [[2, 5]]
    assert numbers(parents([], ONE_LANE, 2)) == [[]]


def test_what_is_slower_than_the_start_may_be_a_parent_and_is_never_the_best() -> None:
    slow = candidate(1, 0.8)
    assert numbers(parents([slow], ONE_LANE, 2)) == [[1]]
    assert best([slow]) is None
    assert best([slow, candidate(2, 1.5), candidate(3, 4.0, "SUSPECT")]) == candidate(2, 1.5)


def test_one_for_a_lane_alone_is_not_the_best_and_hides_no_better_one_for_all() -> None:
    own, whole = candidate(1, 9.0, lane="64x64"), candidate(2, 1.5)
    assert best([own, whole]) == whole
    assert since_better([own, whole]) == 0
    assert since_better([whole, own, candidate(3, 2.0, lane="64x64")]) == 1


def test_settings_of_one_file_are_unlike_where_two_values_differ() -> None:
    first = candidate(1, 2.0, settings={"WIDTH": 32, "WARPS": 4})
    assert not unlike(first, candidate(2, 2.0, settings={"WIDTH": 64, "WARPS": 4}))
    assert unlike(first, candidate(2, 2.0, settings={"WIDTH": 64, "WARPS": 8}))


def test_files_are_unlike_where_a_tenth_of_their_lines_is() -> None:
    lines = [f"line {n}" for n in range(40)]
    first = candidate(1, 2.0, source="\n".join(lines))
    assert not unlike(first, candidate(2, 2.0, source="\n".join(["another", *lines[1:]])))
    assert unlike(first, candidate(2, 2.0, source="\n".join(["others"] * 4 + lines[4:])))


def test_near_twins_of_the_best_make_room_for_something_else() -> None:
    twins = [candidate(n, 3.0 - n / 100, source="same", settings={"W": n, "S": 1}) for n in (1, 2, 3)]
    other = candidate(4, 1.5)
    assert numbers(parents([*twins, other], ONE_LANE, 2)) == [[1, 4]]
    assert numbers(parents(twins, ONE_LANE, 3)) == [[1, 2, 3]]


def test_one_family_does_not_take_all_places() -> None:
    root = candidate(1, 2.0)
    children = [candidate(n, n, parent="sha1") for n in (3, 4, 5)]
    stranger = candidate(6, 1.2)
    assert numbers(parents([root, *children, stranger], ONE_LANE, 3)) == [[5, 4, 6]]
    assert numbers(parents([root, *children, stranger], ONE_LANE, 1)) == [[5]]


def test_each_lane_has_its_own_beam() -> None:
    quick = Interval(4.0, 4.0, 4.0)
    small = candidate(1, 1.5, cases={"4x8x8": quick})
    large = candidate(2, 1.6, cases={"4x64x64": quick, "4x8x8": Interval(1.0, 1.0, 1.0)})
    own = candidate(3, 9.0, lane="64x64")
    assert numbers(parents([small, large, own], TWO_LANES, 2)) == [[1, 2], [3, 2]]


# --- lineage


def test_a_lineage_is_the_oldest_first_and_survives_a_ring() -> None:
    chain = [candidate(1, 1.0), candidate(2, 1.0, parent="sha1"), candidate(3, 1.0, parent="sha2")]
    assert lineage(chain[2], chain) == tuple(chain)
    assert lineage(chain[1], chain[1:]) == (chain[1],)
    ring = [candidate(1, 1.0, parent="sha2"), candidate(2, 1.0, parent="sha1")]
    assert [one.number for one in lineage(ring[0], ring)] == [2, 1]


# --- plateaus


@pytest.mark.parametrize(
    ("speeds", "count"),
    [
        ([], 0),
        ([0.9], 1),
        ([1.005], 1),
        ([2.0], 0),
        ([2.0, 1.5, 2.01], 2),
        ([2.0, 1.5, 2.1, 2.0], 1),
    ],
)
def test_a_plateau_is_how_many_came_after_the_last_better_one(speeds: list[float], count: int) -> None:
    some = [candidate(number, speed) for number, speed in enumerate(speeds, 1)]
    assert since_better(some) == count
    assert since_better(list(reversed(some))) == count


def test_what_failed_counts_on_a_plateau_and_a_failed_machine_does_not() -> None:
    assert since_better([candidate(1, 2.0), candidate(2, None, "FAIL"), candidate(3, None, "INFRA")]) == 1


# --- invariants

OUTCOMES = st.sampled_from(["PASS", "PASS", "PASS", "FAIL", "UNKNOWN", "SUSPECT", "INFRA"])
ONE = st.tuples(st.one_of(st.none(), st.floats(0.1, 10)), OUTCOMES, st.integers(0, 12), st.integers(0, 3))


@given(ones=st.lists(ONE, max_size=12), width=st.integers(1, 5))
def test_a_beam_is_never_wider_nor_holds_one_twice_and_always_holds_the_best(
    ones: list[tuple[float | None, Outcome, int, int]], width: int
) -> None:
    some = [
        replace(candidate(number, over, outcome, parent=f"sha{parent}", settings={"W": value, "S": 1}))
        for number, (over, outcome, parent, value) in enumerate(ones, 1)
    ]
    for lane in parents(some, TWO_LANES, width):
        assert len(lane) <= width
        assert len({one.number for one in lane}) == len(lane)
        assert all(one.over is not None and one.outcome in ("PASS", "UNKNOWN") for one in lane)
        speeds = [one.over.mid for one in lane if one.over]
        assert speeds == sorted(speeds, reverse=True)
        if (first := best(some)) is not None:
            assert lane[0].number == first.number
