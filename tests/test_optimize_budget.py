"""Budgets: how they are read, and that nothing is spent beyond them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optimize_scripted import Clock

from qrprof.planner.optimize.budget import Held, Meter, Reservation, Spent, for_the_end, parse
from qrprof.planner.optimize.prices import Price
from qrprof.planner.optimize.records import Budget, BudgetSpent, Usage
from qrprof.profiler.errors import Exit, QrprofError

CHEAP = Price(input=1.0, output=10.0)  # dollars a million


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("2h,$5,200evals,30gpu-min,100ktokens", Budget(7200.0, 200, 5.0, 100_000, 1800.0)),
        ("1eval", Budget(evaluations=1)),
        ("90s, $0.5", Budget(seconds=90.0, dollars=0.5)),
        ("1.5 min", Budget(seconds=90.0)),
        ("0.5h", Budget(seconds=1800.0)),
        ("20gpu-s", Budget(gpu_seconds=20.0)),
        ("2gpu-h", Budget(gpu_seconds=7200.0)),
        ("1.5ktokens", Budget(tokens=1500)),
        ("2Mtokens", Budget(tokens=2_000_000)),
        ("7tokens", Budget(tokens=7)),
    ],
)
def test_a_budget_is_read_and_keeps_the_defaults_of_what_it_does_not_name(text: str, budget: Budget) -> None:
    assert parse(text) == budget


@pytest.mark.parametrize(
    "text", ["", "2", "5$", "2h,", "-1h", "0evals", "1.5evals", "$0", "2 hours", "nan s", "1e3s", "infs", "٣s"]
)
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(QrprofError, match=r"cannot be read at .*; give limits as 2h,\$5") as caught:
        parse(text)
    assert caught.value.exit_code == Exit.USAGE


def test_two_limits_of_one_kind_are_refused() -> None:
    with pytest.raises(QrprofError, match="limits seconds twice"):
        parse("2h,30min")


def meter(clock: Clock | None = None, before: Spent | None = None, **limits: float | None) -> Meter:
    none: dict[str, float | None] = dict.fromkeys(("seconds", "evaluations", "dollars", "tokens", "gpu_seconds"))
    return Meter(Budget(**none | limits), clock or Clock(), before)  # type: ignore[arg-type]


# --- requests


def test_a_reservation_counts_until_the_request_is_settled() -> None:
    one = meter(tokens=1000)
    asked = one.reserve("proposer", 300, 500, CHEAP)
    with pytest.raises(BudgetSpent, match="up to 300 tokens may exceed the 1,000"):
        one.reserve("adviser", 100, 200, CHEAP)
    one.settle(asked, 300, 100)
    one.reserve("adviser", 100, 200, CHEAP)
    spent = one.spent()
    assert spent["proposer"] == Usage(dollars=(300 + 10 * 100) / 1e6, tokens_in=300, tokens_out=100, requests=1)
    assert spent["adviser"].tokens_out == 200


def test_a_request_that_might_exceed_the_dollars_is_not_made() -> None:
    one = meter(dollars=0.01)
    one.reserve("proposer", 0, 900, CHEAP)
    with pytest.raises(BudgetSpent, match=r"up to \$0.0020 may exceed the \$0.01"):
        one.reserve("proposer", 0, 200, CHEAP)
    one.reserve("proposer", 0, 100, CHEAP)


def test_without_a_price_dollars_hold_nothing_and_tokens_do() -> None:
    with pytest.raises(BudgetSpent, match="no price is known by which to hold the 2 dollars"):
        meter(dollars=2.0).reserve("proposer", 1, 1, None)
    both = meter(dollars=2.0, tokens=10)
    both.reserve("proposer", 1, 4, None)
    assert both.total().dollars is None
    assert "dollars unknown" in both.left()
    with pytest.raises(BudgetSpent, match="tokens"):
        both.reserve("proposer", 1, 5, None)


def test_no_request_is_made_once_the_time_is_up() -> None:
    clock = Clock()
    one = meter(clock, seconds=60.0)
    one.reserve("proposer", 1, 1, CHEAP)
    clock.seconds = 60.0
    with pytest.raises(BudgetSpent, match="60 s"):
        one.reserve("proposer", 1, 1, CHEAP)


# --- evaluations


def test_evaluations_are_counted_before_they_begin_and_some_are_held_back() -> None:
    one = meter(evaluations=5)
    held = Held(evaluations=2)
    assert one.submit(2, held) == 2
    assert one.submit(4, held) == 1
    with pytest.raises(BudgetSpent, match="the 5 evaluations of the budget are used up, but for 2 of them"):
        one.submit(1, held)
    assert one.submit(9) == 2
    with pytest.raises(BudgetSpent, match=r"are used up$"):
        one.submit(1)


def test_seconds_run_on_but_for_a_pause_and_over_a_restart() -> None:
    clock = Clock()
    clock.seconds = 1000.0
    one = meter(clock, seconds=100.0)
    clock.seconds += 70.0
    one.skip(50.0)
    assert one.seconds_left() == 80.0
    later = Clock()
    again = meter(later, one.spent(), seconds=100.0)
    assert again.seconds_left() == 80.0
    later.seconds = 80.0
    with pytest.raises(BudgetSpent, match="the 100 s of the budget are used up"):
        again.submit(1)


def test_gpu_seconds_are_a_limit_of_their_own() -> None:
    one = meter(gpu_seconds=30.0)
    one.submit(1)
    one.count(Usage(gpu_seconds=29.0))
    one.submit(1)
    one.count(Usage(gpu_seconds=2.0))
    with pytest.raises(BudgetSpent, match="the 30 GPU seconds"):
        one.submit(1)
    assert one.remaining() == Budget(None, None, None, None, 0.0)


def test_what_is_left_is_one_line_and_a_budget_for_what_follows() -> None:
    clock = Clock()
    one = meter(clock, seconds=1800.0, evaluations=40, dollars=2.0, tokens=9000, gpu_seconds=60.0)
    one.submit(3)
    one.settle(one.reserve("proposer", 1000, 1000, CHEAP), 1000, 100)
    clock.seconds = 600.0
    assert one.left() == "1,200 s, 37 evaluations, $2.00, 7,900 tokens, 60.0 s of GPU"
    assert one.remaining() == Budget(1200.0, 37, 1.998, 7900, 60.0)
    assert meter().left() == "no limits"


def test_every_change_is_kept() -> None:
    kept: list[Spent] = []
    one = Meter(Budget(), Clock(), keep=kept.append)
    asked = one.reserve("proposer", 10, 10, CHEAP)
    one.settle(asked, 10, 3)
    one.submit(2)
    assert [(spent["proposer"].tokens_out, spent["evaluator"].evaluations) for spent in kept] == [
        (10, 0),
        (3, 0),
        (3, 2),
    ]


@pytest.mark.parametrize(
    ("budget", "held"),
    [
        (Budget(), Held(2, 360.0, 0.0)),
        (Budget(seconds=None, evaluations=None), Held(2, 0.0, 0.0)),
        (Budget(seconds=36000.0, evaluations=3, gpu_seconds=100.0), Held(1, 600.0, 20.0)),
        (Budget(evaluations=1), Held(0, 360.0, 0.0)),
    ],
)
def test_some_of_a_budget_is_for_the_end(budget: Budget, held: Held) -> None:
    assert for_the_end(budget) == held


# --- never beyond

AMOUNTS = st.integers(0, 400)
DEEDS = st.one_of(
    st.tuples(st.just("reserve"), AMOUNTS, AMOUNTS, st.sampled_from(["proposer", "adviser"])),
    st.tuples(st.just("settle"), st.floats(0, 1), st.floats(0, 1), st.just("")),
    st.tuples(st.just("submit"), st.integers(1, 5), st.integers(0, 2), st.just("")),
    st.tuples(st.just("pass"), st.integers(0, 20), st.just(0), st.just("")),
)


@given(deeds=st.lists(DEEDS, max_size=40), tokens=st.integers(0, 2000), evaluations=st.integers(0, 12))
def test_nothing_is_spent_beyond_a_budget_also_over_restarts(
    deeds: list[tuple[str, float, float, str]], tokens: int, evaluations: int
) -> None:
    clock: Clock = Clock()
    kept: list[Spent] = [{}]
    budget = Budget(100.0, evaluations, 0.004, tokens, None)
    one = Meter(budget, clock, keep=kept.append)
    open_: list[Reservation] = []
    for deed, a, b, role in deeds:
        try:
            if deed == "reserve":
                open_.append(one.reserve(role, int(a), int(b), CHEAP))  # type: ignore[arg-type]
            elif deed == "settle" and open_:
                asked = open_.pop()
                one.settle(asked, int(a * asked.tokens_in), int(b * asked.tokens_out))
            elif deed == "submit":
                one.submit(int(a), Held(int(b)))
            elif deed == "pass":
                clock.seconds += a
        except BudgetSpent:
            pass
        total = one.total()
        assert total.tokens_in + total.tokens_out <= tokens
        assert total.evaluations <= evaluations
        assert (total.dollars or 0.0) <= 0.004 + 1e-12
    after_a_kill = Meter(budget, clock, kept[-1])
    for name in ("evaluations", "tokens_in", "tokens_out", "requests"):
        assert getattr(after_a_kill.total(), name) == getattr(one.total(), name)
    assert math.isclose(after_a_kill.total().dollars or 0.0, one.total().dollars or 0.0, abs_tol=1e-12)
