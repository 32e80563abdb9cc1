"""Which steps are timed and recorded: known answers, and whole programs simulated step by step."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qrprof.profiler.recording.plan import (
    Phase,
    Progress,
    Settings,
    Step,
    decide,
    find_period,
    kinds_of,
    shortest_cover,
    slow_series,
    weights,
    whole_periods,
)

QR = (("linalg_qr[64, 64]", 2),)
SVD = (("_linalg_svd[64, 64]", 1),)
MS = 1_000_000


def steps(text: str, slow: Sequence[int] = ()) -> list[Step]:
    """A step a letter: "." calls nothing, "q" two QRs, "s" an SVD; those in `slow` take three times the time."""
    calls = {".": (), "q": QR, "s": SVD}
    return [Step(i, calls[c], 3 * MS if i in slow else MS + 1000 * (i % 7), 0) for i, c in enumerate(text)]


# --- kinds


def test_kinds_are_named_by_how_common_they_are() -> None:
    assert "".join(kinds_of(steps("q..s..q.."))) == "BAACAABAA"
    assert kinds_of([]) == []


def test_a_regular_series_of_slow_steps_is_a_kind_of_its_own() -> None:
    found = steps("." * 20, slow=[3, 8, 13, 18])
    assert slow_series(found) == (5, 3)
    assert Counter(kinds_of(found)) == {"A": 16, "A+": 4}


@pytest.mark.parametrize(
    "slow",
    [[2, 9, 16], [3, 8, 14, 18], [3, 8, 18], [2, 3, 4, 5], []],
    ids=["only three", "one off", "one missing", "neighbours", "none"],
)
def test_slow_steps_without_a_rhythm_are_noise(slow: list[int]) -> None:
    assert slow_series(steps("." * 20, slow)) is None


@pytest.mark.parametrize(("times", "series"), [(1.6, (5, 3)), (1.9, (5, 3)), (2.1, None), (2.9, None)])
def test_a_series_stands_out_from_slow_steps_that_are_shorter_by_far(
    times: float, series: tuple[int, int] | None
) -> None:
    """Where it does not, four of the longest may lie evenly by chance."""
    found = [
        replace(step, ns=round(times * MS)) if step.index in (5, 6, 12) else step
        for step in steps("." * 20, [3, 8, 13, 18])
    ]
    assert slow_series(found) == series


def test_a_slower_series_within_a_slow_one_is_a_kind_of_its_own() -> None:
    slower = range(3, 60, 15)
    found = [replace(step, ns=9 * MS) if step.index in slower else step for step in steps("." * 60, range(3, 60, 5))]
    assert Counter(kinds_of(found)) == {"A": 48, "A+": 8, "A++": 4}
    assert [step.index for step, kind in zip(found, kinds_of(found), strict=True) if kind == "A++"] == [*slower]


def test_profiled_steps_belong_to_the_series_though_they_are_not_timed() -> None:
    found = [
        Step(step.index, step.calls, None if step.index in (8, 9) else step.ns, 0)
        for step in steps("." * 25, [3, 13, 18, 23])
    ]
    assert slow_series(found) == (5, 3)
    assert [step.index for step, kind in zip(found, kinds_of(found), strict=True) if kind == "A+"] == [3, 8, 13, 18, 23]


# --- periods


@pytest.mark.parametrize(
    ("kinds", "period"),
    [
        ("", 1),
        ("A", 1),
        ("AAAAAA", 1),
        ("ABAB", 2),
        ("ABA", None),
        ("AABAAB", 3),
        ("AABAABA", 3),
        ("AAAAB", None),
        ("AABAAC", None),
        ("ABAABABAAB", 5),
        (("A" * 63 + "B") * 2, 64),
        (("A" * 64 + "B") * 3, None),  # longer than is looked for
    ],
)
def test_the_shortest_period_that_two_whole_cycles_confirm(kinds: str, period: int | None) -> None:
    assert find_period(kinds) == period


@given(st.text("AB", min_size=1, max_size=64), st.integers(2, 4), st.integers(0, 63))
def test_a_repeated_cycle_has_a_period_that_divides_nothing_wrongly(cycle: str, times: int, more: int) -> None:
    kinds = cycle * times + (cycle * 64)[:more]
    period = find_period(kinds)
    assert period is not None
    assert period <= len(cycle)
    assert kinds[period:] == kinds[:-period]
    assert all(kinds[shorter:] != kinds[:-shorter] for shorter in range(1, period))


@pytest.mark.parametrize(
    ("cycle", "cover"), [("A", (1, 1)), ("AAAAB", (3, 2)), ("BAAAA", (4, 2)), ("ABC", (1, 3)), ("AABAAC", (2, 4))]
)
def test_the_shortest_stretch_with_each_kind(cycle: str, cover: tuple[int, int]) -> None:
    assert shortest_cover(cycle) == cover


@given(st.text("ABC", min_size=1, max_size=12))
def test_no_shorter_stretch_has_each_kind(cycle: str) -> None:
    start, length = shortest_cover(cycle)
    endless = cycle * 3
    assert 1 <= start <= len(cycle)
    assert set(endless[start : start + length]) == set(cycle)
    assert not any(set(endless[i : i + length - 1]) == set(cycle) for i in range(len(cycle)))


def test_whole_periods_are_the_last_ones() -> None:
    assert whole_periods([1, 2, 3, 4, 5], 2) == [2, 3, 4, 5]
    assert whole_periods([1, 2, 3, 4, 5], None) == [1, 2, 3, 4, 5]
    assert whole_periods([1, 2, 3], 4) == []


@pytest.mark.parametrize(
    ("recorded", "seen", "period", "expected"),
    [
        ("AAAAA", "A" * 40, 1, [0.2] * 5),
        ("AB", ("A" * 9 + "B") * 4, 10, [0.9, 0.1]),
        ("AAB", ("A" * 49 + "B") * 2, 50, [0.49, 0.49, 0.02]),
        ("AB", "A" + "AAB" * 2, 3, [2 / 3, 1 / 3]),  # the first step is no whole period
        ("A", "AAB" * 5, 3, [1.0]),  # B was not recorded
        ("A", "", 1, [1.0]),  # the whole run
    ],
)
def test_a_recorded_step_weighs_what_its_kind_does(
    recorded: str, seen: str, period: int | None, expected: list[float]
) -> None:
    assert weights(recorded, seen, period) == pytest.approx(expected)


@given(st.text("ABC", min_size=1, max_size=9), st.text("ABC", max_size=99), st.integers(1, 64) | st.none())
def test_weights_sum_to_one(recorded: str, seen: str, period: int | None) -> None:
    found = weights(recorded, seen, period)
    assert len(found) == len(recorded)
    assert sum(found) == pytest.approx(1)
    assert min(found) > 0


# --- whole programs


@dataclass
class Course:
    """What `decide` made of a program."""

    phases: list[tuple[Phase, int]] = field(default_factory=list)
    windows: list[list[int]] = field(default_factory=list)
    seen: list[Step] = field(default_factory=list)
    length: int = 0  # steps until the recorder was done

    @property
    def kinds(self) -> dict[int, str]:
        return {step.index: kind for step, kind in zip(self.seen, kinds_of(self.seen), strict=True)}


def follow(
    calls: Callable[[int], tuple[tuple[str, int], ...]],
    settings: Settings = Settings(),  # noqa: B008 - frozen
    ns: Callable[[int], int] = lambda i: MS,
    unsampled: bool = False,
    limit: int = 2000,
) -> Course:
    """Do what the recorder does, for a program whose i-th step makes `calls(i)` and takes `ns(i)`."""
    course, phase, length, seconds = Course(), Phase.WARMUP, settings.warmup, 0.0
    while phase is not Phase.DONE:
        first = course.length
        run = length + 2 if phase is Phase.RECORD else length
        for i in range(first, first + run):
            seconds += ns(i) / 1e9
            if phase in (Phase.UNPROFILED, Phase.RECORD):
                timed = ns(i) if phase is Phase.UNPROFILED else None
                course.seen.append(Step(i, calls(i), timed, min(len(course.windows), 1)))
        course.length += run
        assert course.length < limit
        if phase is Phase.RECORD:
            course.windows.append(list(range(first + 1, first + 1 + length)))
        if phase is Phase.STOP:
            return course
        last = course.windows[-1] if course.windows else []
        progress = Progress(tuple(course.seen), phase, len(course.windows), tuple(last), seconds, unsampled)
        decision = decide(progress, settings)
        phase, length = decision.phase, decision.steps
        course.phases.append((phase, length))
    return course


def each(period: int, offset: int = 0) -> Callable[[int], tuple[tuple[str, int], ...]]:
    return lambda i: QR if i % period == offset else ()


def check_window(course: Course, calls: Callable[[int], tuple[tuple[str, int], ...]], frequency: float) -> None:
    """The last window holds a step with calls, and such steps weigh what they should."""
    window, kinds = course.windows[-1], course.kinds
    recorded = [kinds[i] for i in window]
    period = find_period(kinds_of(course.seen))
    weight = weights(recorded, kinds_of(course.seen), period)
    assert sum(w for i, w in zip(window, weight, strict=True) if calls(i)) == pytest.approx(frequency)


def test_a_steady_program() -> None:
    course = follow(lambda i: QR)
    assert course.windows == [[24, 25, 26, 27, 28]]  # 3 warm-up, 20 unprofiled, 1 lead-in
    assert course.length <= 3 + 128 + 5


@pytest.mark.parametrize("offset", [0, 1, 4, 9])
def test_a_short_period_is_recorded_whole(offset: int) -> None:
    calls = each(10, offset)
    course = follow(calls)
    assert [len(window) for window in course.windows] == [10]
    check_window(course, calls, 0.1)


def test_a_period_of_seven_fills_the_five_steps_asked_for() -> None:
    course = follow(each(7))
    assert [len(window) for window in course.windows] == [7]
    check_window(course, each(7), 1 / 7)


@pytest.mark.parametrize("period", [25, 50, 64])
def test_a_rare_step_is_found_and_recorded_in_a_short_window(period: int) -> None:
    calls = each(period, period - 1)
    course = follow(calls)
    assert len(course.windows[-1]) <= 5
    check_window(course, calls, 1 / period)
    assert course.length < 400


def test_two_rare_kinds_far_apart_are_recorded_as_far_as_a_window_goes() -> None:
    course = follow(lambda i: QR if i % 60 == 0 else SVD if i % 60 == 30 else ())
    assert len(course.windows[-1]) == Settings().unprofiled
    assert course.length < 400


def test_a_rhythm_seen_only_in_the_times_is_a_period() -> None:
    course = follow(lambda i: (), ns=lambda i: 5 * MS if i % 10 == 2 else MS)
    window, kinds = course.windows[-1], course.kinds
    assert [kinds[i] for i in window].count("A+") == 1
    assert len(window) == 10


def rare(period: int, offset: int, also: Callable[[int], bool] = lambda i: False) -> Callable[[int], int]:
    """Times of a program with an evaluation each `period` steps; steps `also` named take a bit longer."""
    return lambda i: 100 * MS if i % period == offset else MS + MS * 6 // 10 * also(i)


def check_rare(course: Course, period: int, offset: int) -> None:
    """The last window holds the evaluation, and it weighs what it should."""
    kinds = kinds_of(course.seen)
    recorded = [course.kinds[i] for i in course.windows[-1]]
    weight = weights(recorded, kinds, find_period(kinds))
    found = sum(w for i, w in zip(course.windows[-1], weight, strict=True) if i % period == offset)
    assert found == pytest.approx(1 / period)


@given(st.integers(2, 64), st.integers(0, 63), st.integers(10, 200))
@example(64, 26, 90)  # one falls into the recording
@example(50, 0, 1000)
def test_an_evaluation_is_found_by_its_time_alone(period: int, offset: int, other: int) -> None:
    offset %= period
    course = follow(lambda i: (), ns=rare(period, offset, also=lambda i: i == other))
    check_rare(course, period, offset)
    assert course.length <= 6 * 64


def test_an_evaluation_beside_a_log_is_found() -> None:
    def ns(i: int) -> int:
        return 100 * MS if i % 50 == 9 else 8 * MS if i % 10 == 9 else MS

    course = follow(lambda i: (), ns=ns)
    check_rare(course, 50, 9)
    assert {course.kinds[i] for i in course.windows[-1]} == {"A", "A+", "A++"}


def test_an_evaluation_rarer_than_is_looked_for_takes_as_long_a_window() -> None:
    course = follow(lambda i: (), Settings(steps=100), rare(100, 7))
    (window,) = course.windows
    assert len(window) == 100
    assert sum(i % 100 == 7 for i in window) == 1
    assert window[-1] + 2 <= 505  # the steps of the program that are asked for then


def test_steps_that_are_slow_at_random_are_not_waited_for() -> None:
    steady = follow(lambda i: ()).length
    assert follow(lambda i: (), ns=lambda i: 30 * MS if i == 110 else MS).length == steady
    assert follow(lambda i: (), ns=lambda i: 30 * MS if i in (40, 53, 99) else MS).length == steady
    assert follow(lambda i: (), ns=lambda i: 3 * MS if i in (50, 100) else MS).length == steady


def test_a_stall_is_waited_for_until_it_is_overdue() -> None:
    course = follow(lambda i: (), ns=lambda i: 5_000 * MS if i == 15 else 500 * MS)  # 20 steps take 12 s
    assert 15 + 64 <= course.length <= 15 + 64 + 5
    assert [len(window) for window in course.windows] == [5]


def test_a_slow_program_is_not_waited_for() -> None:
    course = follow(lambda i: (), ns=lambda i: 100_000 * MS if i == 5 else 4_000 * MS)
    assert course.length < 25


def test_without_a_period_what_was_asked_for_is_recorded() -> None:
    course = follow(lambda i: QR if (i**0.5).is_integer() else ())
    assert [len(window) for window in course.windows] == [5]
    assert course.length < 400


@example("q..qqqq..qqqq", 0, 1)  # of which two cycles of six stand in the first twelve steps
@given(st.text("..q", min_size=1, max_size=64), st.integers(0, 12), st.integers(1, 8))
def test_any_periodic_program_ends_with_each_kind_recorded(cycle: str, warmup: int, asked: int) -> None:
    def calls(i: int) -> tuple[tuple[str, int], ...]:
        return QR if cycle[i % len(cycle)] == "q" else ()

    course = follow(calls, Settings(steps=asked, warmup=max(1, warmup)), limit=500)
    _, cover = shortest_cover(cycle)
    if cover <= 4 * asked:
        check_window(course, calls, cycle.count("q") / len(cycle))
    assert 1 <= len(course.windows) <= 3


@given(st.lists(st.sampled_from([(), QR, SVD]), min_size=1, max_size=300), st.randoms(use_true_random=False))
def test_any_program_ends(program: list[tuple[tuple[str, int], ...]], chance: random.Random) -> None:
    times = [chance.choice([MS, MS, MS, 4 * MS]) for _ in program]
    course = follow(
        lambda i: program[i % len(program)],
        ns=lambda i: times[i % len(times)],
        unsampled=chance.random() < 0.5,
        limit=500,
    )
    assert 1 <= len(course.windows) <= 3
    assert all(1 <= len(window) <= 20 for window in course.windows)


def test_a_slow_program_is_not_made_to_wait() -> None:
    course = follow(lambda i: QR, ns=lambda i: 4_000 * MS)  # 4 s a step
    assert course.windows == [[9, 10, 11, 12, 13]]  # 5 unprofiled ones take more than 10 s
    assert course.length < 50


def test_matrices_not_seen_in_the_warm_up_are_sampled_after_the_last_timed_step() -> None:
    course = follow(each(10, 9), unsampled=True)
    assert course.phases[-2:] == [(Phase.SAMPLE, 10), (Phase.DONE, 0)]


def test_stop_comes_two_steps_after_the_decision() -> None:
    assert follow(lambda i: QR, Settings(stop=True)).phases[-1] == (Phase.STOP, 2)


def test_a_repeat_only_times_steps() -> None:
    course = follow(each(10), Settings(record=False))
    assert course.windows == []
    assert {phase for phase, _ in course.phases} == {Phase.UNPROFILED, Phase.DONE}
    assert sum(step.ns is not None for step in course.seen) == 20
