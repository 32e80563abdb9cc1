"""What readings say, and the protocol that takes them."""

import math
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from gate_scripted import SOFTMAX, Clock, Script, ScriptedWorker, softmax, stock_of
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.gate import rounds
from qrprof.planner.gate.readings import Reading, deviation, impossible, logs, mismatch, nets
from qrprof.planner.gate.replies import Built, Worker
from qrprof.planner.gate.rounds import CANDIDATE, LONGEST_NS, REQUEST_NS, STOCK, TWIN, Legs, calls_of, measure, pairs
from qrprof.planner.gate.trial import Trial

times = st.floats(1e3, 1e9)


def readings(calls_ns: Sequence[float], *, trip_ns: float = 100.0, calls: int = 10, seen: float = 1.0) -> list[Reading]:
    return [
        Reading(calls, round(calls * (ns + trip_ns)), round(calls * trip_ns), round(calls * ns * seen))
        for ns in calls_ns
    ]


# --- readings


def test_the_round_trip_is_taken_off() -> None:
    assert nets(readings([1000.0, 3000.0])) == pytest.approx([1000, 3000])


def test_one_slow_round_trip_is_not_taken_off_its_own_request() -> None:
    disturbed = [*readings([1000.0] * 4), Reading(10, 11_000, 900_000, 10_000)]
    assert nets(disturbed)[-1] == pytest.approx(1000)


def test_a_pair_is_two_requests_of_each_leg() -> None:
    found = logs(readings([2000.0, 2000.0, 4000.0, 4000.0]), readings([1000.0, 1000.0, 1000.0, 1000.0]))
    assert found == pytest.approx((math.log(2), math.log(4)))


def test_calls_that_the_round_trip_swallows_have_no_ratio() -> None:
    assert logs(readings([1000.0] * 4), [Reading(1, 50, 100, 10)] * 4) is None


def test_one_swallowed_reading_is_an_extreme_and_no_more() -> None:
    other = [*readings([1000.0] * 5), Reading(10, 500, 1000, 400)]
    found = logs(readings([1000.0] * 6), other)
    assert found is not None
    assert found[:2] == pytest.approx((0, 0), abs=1e-3)
    assert 0 < found[2] < 1  # its own pair alone


@given(st.lists(times, min_size=4, max_size=8).filter(lambda values: len(values) % 2 == 0), st.floats(0, 1e6))
def test_ratios_do_not_depend_on_the_round_trip(ns: list[float], trip_ns: float) -> None:
    near, far = (logs(readings(ns, trip_ns=trip), readings([5e4] * len(ns), trip_ns=trip)) for trip in (0, trip_ns))
    assert near == pytest.approx(far, abs=1e-2)


@given(st.lists(times, min_size=2, max_size=9))
def test_clocks_that_agree_are_not_suspect(ns: list[float]) -> None:
    assert mismatch(readings(ns), readings(ns)) is None


@given(times.filter(lambda ns: ns > 1e5), st.floats(0.0, 0.8))
def test_a_share_of_the_work_out_of_the_childs_sight_is_suspect(ns: float, seen: float) -> None:
    detail = mismatch(readings([ns] * 6, seen=seen), readings([ns] * 6))
    assert detail is not None
    assert "out of its sight" in detail


def test_what_a_harness_adds_to_every_leg_is_not_held_against_the_candidate() -> None:
    slow_harness = readings([1e6] * 6, seen=0.5)
    assert mismatch(slow_harness, readings([2e6] * 6, seen=0.5)) is None


def test_a_child_that_sees_more_than_the_parent_is_suspect() -> None:
    assert "more than the parent's" in (mismatch(readings([1e6] * 6, seen=1.5), readings([1e6] * 6)) or "")


def test_a_childs_clock_that_stood_still_is_suspect_however_noisy_the_readings() -> None:
    noisy = [Reading(1, wall, 0, 0) for wall in (200_000, 3_000_000, 900_000, 5_000_000)]
    assert "stood still" in (mismatch(noisy, noisy) or "")


def test_launches_are_not_missing_from_the_childs_clock() -> None:
    launching = [Reading(1, 200_000, 0, 100_000, launches=20)] * 6
    assert mismatch(launching, readings([1e5] * 6)) is None


@pytest.mark.parametrize(
    ("candidate", "stock", "told"),
    [(100.0, 5000.0, True), (2000.0, 5000.0, False), (100.0, 500.0, False)],  # the last: stock is below the floor too
)
def test_a_floor_holds_where_the_stock_op_keeps_it(candidate: float, stock: float, told: bool) -> None:
    assert (impossible(readings([candidate] * 6), readings([stock] * 6), 1000.0) is not None) is told


def test_a_noisy_reading_below_the_floor_is_no_proof() -> None:
    assert impossible(readings([100.0, 3000.0] * 3), readings([5000.0] * 6), 1600.0) is None
    assert deviation([100.0, 3000.0] * 3) == 1450


def test_calls_that_the_round_trip_swallows_are_not_impossible() -> None:
    assert impossible(readings([-5000.0] * 6), readings([5000.0] * 6), 1000.0) is None


# --- the protocol


class Recorded(ScriptedWorker):
    """Writes down what it is asked."""

    def __init__(self, name: str, script: Script, clock: Clock, log: list[tuple[str, int, Any]]) -> None:
        super().__init__(script, clock, seed=1)
        self.name = name
        self.log = log

    def call(self, inputs: Any, *, watch: bool = False, again: bool = False) -> Any:
        self.log.append((self.name, len(inputs), inputs[0][0]))
        return super().call(inputs, watch=watch, again=again)


def field_of(costs: dict[str, float]) -> tuple[Trial, dict[str, Worker], list[tuple[str, int, Any]]]:
    clock, log = Clock(), list[tuple[str, int, Any]]()
    made: dict[str, Worker] = {}
    for name, cost in costs.items():
        make = (lambda: stock_of(SOFTMAX)) if name in (STOCK, TWIN) else (lambda: softmax)
        made[name] = Recorded(name, Script(make, cost_ns=cost, spread=0.0), clock, log)
        made[name].build()
    seeds = iter(range(1, 10**9))

    def no_process(source: Any) -> Any:
        raise AssertionError("no new process is needed")

    source: Any = None
    trial = Trial(
        SOFTMAX,
        source,
        no_process,
        made[STOCK],
        made[CANDIDATE],
        Built(0.0),
        lambda: next(seeds),
        random.Random(3),
    )
    return trial, made, log


def rounds_of(trial: Trial, legs: Legs, calls: int, count: int) -> None:
    for _ in range(count):
        measure(trial, legs, {case.name: calls for case in SOFTMAX.development})


def test_legs_take_turns_there_and_back_on_the_same_new_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "UNTIMED", 0.0)
    trial, made, log = field_of({STOCK: 6e6, TWIN: 6e6, CANDIDATE: 6e6})
    legs = Legs(made)
    rounds_of(trial, legs, 1, 4)
    timed = [reading for readings in legs.readings.values() for reading in readings]
    assert len(timed) == 4 * 2 * 2 * 3  # rounds, cases, ways, legs
    assert {reading.calls for reading in timed} == {1}
    groups = [log[at : at + 3] for at in range(0, len(log), 3)]
    assert all({name for name, *_ in group} == set(made) for group in groups)
    assert all(group[0][2] is group[1][2] is group[2][2] for group in groups)
    assert len({id(group[0][2]) for group in groups}) == len(groups)  # alive in the log: no id is taken twice
    orders = [[name for name, *_ in group] for group in groups]
    mirrored = sum(there == back[::-1] for there, back in pairwise(orders))
    assert mirrored >= 8  # each of 4 rounds of 2 cases
    assert len({tuple(order) for order in orders}) > 2


def test_a_request_holds_as_many_short_calls_as_last_and_not_always_the_same_number() -> None:
    trial, made, _ = field_of({STOCK: 1e5, TWIN: 2e5, CANDIDATE: 5e5})
    case = SOFTMAX.development[0]
    assert calls_of(trial, Legs(made), case) == math.ceil(REQUEST_NS / 1e5)
    legs = Legs(made)
    rounds_of(trial, legs, 5, 6)
    counts = {reading.calls for readings in legs.readings.values() for reading in readings}
    assert counts <= set(range(5, 8))
    assert len(counts) > 1


def test_a_leg_that_is_far_slower_does_not_hold_up_the_others() -> None:
    trial, made, _ = field_of({STOCK: 1e5, TWIN: 1e5, CANDIDATE: 1e7})
    assert calls_of(trial, Legs(made), SOFTMAX.development[0]) == LONGEST_NS / 1e7


def test_one_call_that_lasts_is_a_request() -> None:
    trial, made, _ = field_of({STOCK: 2 * REQUEST_NS, CANDIDATE: 3 * REQUEST_NS})
    assert calls_of(trial, Legs(made), SOFTMAX.development[0]) == 1


def test_pairs_carry_the_cases_weights() -> None:
    trial, made, _ = field_of({STOCK: 6e6, TWIN: 6e6, CANDIDATE: 2e6})
    legs = Legs(made)
    rounds_of(trial, legs, 1, 3)
    found = pairs(trial, legs, CANDIDATE, STOCK)
    assert found is not None
    assert {name: one.weight for name, one in found.items()} == {"16x8": 0.4, "8x12": 0.6}
    assert [len(one.logs) for one in found.values()] == [3, 3]
    assert all(log == pytest.approx(math.log(3)) for one in found.values() for log in one.logs)


def test_every_answer_of_the_candidate_is_checked_and_the_first_wrong_request_kept() -> None:
    trial, made, log = field_of({STOCK: 6e6, TWIN: 6e6, CANDIDATE: 6e6})
    legs = Legs(made)
    worker = made[CANDIDATE]
    assert isinstance(worker, Recorded)
    worker.candidate = lambda x, dim, half: softmax(x, dim) * 1.01
    rounds_of(trial, legs, 2, 2)
    asked = sum(count for name, count, _ in log if name == CANDIDATE)
    assert legs.checked.checked == asked
    assert sum(finding.detector == "wrong" for finding in legs.checked.findings) == asked
    assert legs.failing is not None


def test_the_round_trip_is_that_of_the_stock_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    trial, made, _ = field_of({STOCK: 6e6, TWIN: 6e6, CANDIDATE: 6e6})
    worker = made[CANDIDATE]
    assert isinstance(worker, Recorded)
    monkeypatch.setattr(worker, "echo", lambda inputs, outputs: 10**9)
    legs = Legs(made)
    rounds_of(trial, legs, 1, 1)
    assert {reading.echo_ns for readings in legs.readings.values() for reading in readings} == {20_000}


def test_requests_that_are_not_timed_come_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "UNTIMED", 1.0)
    trial, made, log = field_of({STOCK: 6e6, TWIN: 6e6, CANDIDATE: 6e6})
    legs = Legs(made)
    rounds_of(trial, legs, 1, 3)
    assert len(log) == 3 * 2 * (2 * 3 + 2)  # rounds, cases; both ways through three legs, and two that are not timed
    assert sum(len(readings) for readings in legs.readings.values()) == 3 * 2 * 2 * 3
    assert legs.checked.checked == sum(count for name, count, _ in log if name == CANDIDATE)
