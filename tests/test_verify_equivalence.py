"""Training equivalence with known answers: runs whose steps are made up."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.kernels.running.watched import Apart, Machine, Parameter, Served, Step, Swaps, Trained
from qrprof.planner.verify.equivalence import EPS, FORCED, FREE, equivalence
from qrprof.planner.verify.records import Kind
from qrprof.planner.verify.verify import notes

FORCED_STEPS, FREE_STEPS = 3, 4
NAMES = ("embedding.weight", "head.weight")
SPREAD = 1e-6  # of gradients, updates and state in a forced step, as fractions
DRIFT = 1e-5  # of the loss and the size of updates in a free one


def parameter(off: float = 0.0, apart: bool = True, drift: float = 0.0) -> Parameter:
    """Its gradient has norm 2, its update 0.1; `off` is how far from the stock run's a forced step leaves all."""
    return Parameter(
        dtype="float32",
        gradient=2.0,
        update=0.1 * (1 + drift),
        weight=1.0,
        apart=Apart(2.0 * off, 0.1 * off, off) if apart else None,
    )


def run(off: float = 0.0, drift: float = 0.0, leads: bool = False, hits: int = 0) -> Trained:
    """A first step, those that begin alike, and free ones whose loss and updates drift by a fraction."""
    steps = []
    for k in range(1 + FORCED_STEPS + FREE_STEPS):
        forced = 1 <= k <= FORCED_STEPS and not leads
        moved = drift if k > FORCED_STEPS else 0.0
        parameters = tuple(parameter(off, forced, moved) for _ in NAMES)
        steps.append(Step(0, 4.0 * (1 + moved), 1, f"generators {k}", {"qr": hits * k}, parameters))
    served = (Served("linalg_qr", "CPU", hits * len(steps), {}, 0, 0, 0, "qr"),) if hits else ()
    return Trained((NAMES,), tuple(steps), Swaps(served), 0, Machine("", "", 0, {}))


STOCK = run(leads=True)
MOVED = [run(SPREAD * (1 - 0.1 * i), drift=DRIFT * (0.5 - 0.2 * i)) for i in range(5)]  # the drift's range is 0.8 DRIFT


def at(change: Callable[[Parameter], Parameter], base: Trained | None = None, which: Sequence[int] = (0,)) -> Trained:
    """The swapped run, with some parameters of the forced steps changed."""
    run_ = base or run(SPREAD, hits=1)
    steps = [
        replace(step, parameters=tuple(change(p) if i in which else p for i, p in enumerate(step.parameters)))
        if 1 <= k <= FORCED_STEPS
        else step
        for k, step in enumerate(run_.steps)
    ]
    return replace(run_, steps=tuple(steps))


def kinds(swapped: Trained, stock: Trained = STOCK, spread: Sequence[Trained] = MOVED) -> list[Kind]:
    return [one.kind for one in equivalence(stock, spread, swapped).findings]


def test_a_run_within_the_spread_is_the_same() -> None:
    found = equivalence(STOCK, MOVED, run(2 * SPREAD, drift=DRIFT, hits=1))
    assert found.findings == ()
    assert (found.forced, found.free, found.parameters) == (FORCED_STEPS, FREE_STEPS, 2)
    assert found.gradient == pytest.approx(2 * SPREAD)
    assert found.amplified is not None
    assert found.amplified.decides
    assert found.amplified.loss == pytest.approx(0.8 * DRIFT, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda p: replace(p, dtype=None, gradient=0.0), "no gradient"),
        (lambda p: replace(p, gradient=0.0), "no gradient"),
        (lambda p: replace(p, gradient=math.nan), "not finite"),
        (lambda p: replace(p, gradient=math.inf), "not finite"),
        (lambda p: replace(p, dtype="float16"), "dtype"),
        (lambda p: replace(p, apart=replace(p.apart, gradient=2.0 * 5 * SPREAD)), "gradient"),
        (lambda p: replace(p, apart=replace(p.apart, gradient=math.nan)), "gradient"),
        (lambda p: replace(p, apart=replace(p.apart, update=0.1 * 1e-3)), "update"),
        (lambda p: replace(p, apart=replace(p.apart, state=1.4)), "state"),
    ],
)
def test_what_a_swap_breaks_in_one_parameter_is_named(change: Any, expected: Kind) -> None:
    (found,) = equivalence(STOCK, MOVED, at(change)).findings
    assert found.kind == expected
    assert "1 of 2 parameters (embedding.weight)" in found.text


def resting(step: int, moved: float) -> Trained:
    """A stock run, or one that leaves the parameter that rests in one step as far as `moved` from there."""
    base = STOCK if moved < 0 else run(SPREAD, hits=1)
    steps = list(base.steps)
    first, *others = steps[step].parameters
    apart = replace(first.apart, update=moved) if first.apart else None
    steps[step] = replace(steps[step], parameters=(replace(first, update=0.0, apart=apart), *others))
    return replace(base, steps=tuple(steps))


def test_a_step_in_which_a_parameter_rests_says_nothing_of_the_others() -> None:
    """As at a learning rate of 0, or for an expert that no token came to."""
    stock, spread = resting(2, -1.0), [resting(2, 0.0)] * 5
    assert kinds(resting(2, 0.0), stock, spread) == []

    def astray(p: Parameter) -> Parameter:
        return replace(p, apart=Apart(0.0, 0.5, 0.0)) if p.update else p

    assert kinds(at(astray, resting(2, 0.0)), stock, spread) == ["update"]
    assert kinds(resting(2, 1e-3), stock, spread) == ["update"]
    assert kinds(resting(2, 1e-6), stock, spread) == [], "eight roundings of its weight"


def test_a_gradient_that_stock_has_not_either_is_not_missing() -> None:
    without = at(lambda p: replace(p, dtype=None, gradient=0.0), STOCK)
    assert kinds(at(lambda p: replace(p, dtype=None, gradient=0.0)), without) == []


def test_a_gradient_of_rounding_noise_may_be_zero() -> None:
    noise = at(lambda p: replace(p, gradient=1e-9), STOCK)
    moved = [at(lambda p: replace(p, gradient=1e-9, apart=Apart(1e-9, 0.0, 0.0)), one) for one in MOVED]
    zero = at(lambda p: replace(p, gradient=0.0, apart=Apart(1e-9, 0.0, 0.0)))
    assert kinds(zero, noise, moved) == []


def test_a_gradient_that_overflows_in_the_stock_run_too_says_nothing() -> None:
    """As in the first steps of a program that scales its losses: it is skipped."""

    def over(p: Parameter) -> Parameter:
        return replace(p, gradient=math.inf, update=0.0, apart=p.apart and Apart(math.nan, 0.0, 0.0))

    assert kinds(at(over), at(over, STOCK), [at(over, one) for one in MOVED]) == []


@pytest.mark.parametrize("step", [FORCED_STEPS, FORCED_STEPS + 2])
@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_stock_program_that_diverges_proves_nothing(step: int, loss: float) -> None:
    def lost(run_: Trained) -> Trained:
        return replace(
            run_, steps=tuple(replace(one, loss=loss) if k >= step else one for k, one in enumerate(run_.steps))
        )

    (found,) = equivalence(lost(STOCK), list(map(lost, MOVED)), lost(run(SPREAD, hits=1))).findings
    assert (found.kind, found.text) == ("not repeatable", f"the stock program's loss in step {step} is {loss}")


def losing(run_: Trained, steps: Sequence[int]) -> Trained:
    """Whose loss is no number in these steps."""
    made = [replace(step, loss=math.nan) if k in steps else step for k, step in enumerate(run_.steps)]
    return replace(run_, steps=tuple(made))


@pytest.mark.parametrize("which", [0, 4])
def test_stock_runs_that_lose_their_numbers_by_rounding_excuse_that_a_swapped_one_drifts(which: int) -> None:
    free = range(FORCED_STEPS + 2, FORCED_STEPS + FREE_STEPS + 1)
    moved = [losing(one, free) if i == which else one for i, one in enumerate(MOVED)]
    found = equivalence(STOCK, moved, run(SPREAD, drift=10 * DRIFT, hits=1))
    assert found.findings == ()
    assert found.amplified is not None
    assert (found.amplified.loss, found.amplified.decides) == (math.inf, False)


def test_stock_runs_that_lose_their_loss_in_steps_that_begin_alike_prove_nothing() -> None:
    (found,) = equivalence(STOCK, [*MOVED[:4], losing(MOVED[4], [2])], run(SPREAD, hits=1)).findings
    assert (found.kind, found.text) == (
        "not repeatable",
        "where inputs are moved by one rounding, the loss of step 2 is nan",
    )


def test_gradients_that_rounding_alone_makes_infinite_prove_nothing() -> None:
    moved = [*MOVED[:4], at(lambda p: replace(p, gradient=math.inf), MOVED[4])]
    (found,) = equivalence(STOCK, moved, run(SPREAD, hits=1)).findings
    assert (found.kind, found.text) == (
        "not repeatable",
        "where inputs are moved by one rounding, gradients of the stock program are not finite",
    )


@pytest.mark.parametrize("which", [0, 4])
def test_a_state_that_rounding_alone_makes_no_number_is_not_compared(which: int) -> None:
    def lost(p: Parameter) -> Parameter:
        return replace(p, apart=p.apart and replace(p.apart, update=math.nan, state=math.nan))

    moved = [at(lost, one) if i == which else one for i, one in enumerate(MOVED)]
    assert kinds(run(SPREAD, hits=1), spread=moved) == []
    assert kinds(at(lambda p: replace(p, apart=Apart(1.0, 1.0, 1.0))), spread=moved) == ["gradient"]


def test_random_numbers_drawn_by_a_swap_are_noticed() -> None:
    swapped = run(SPREAD, hits=1)
    steps = list(swapped.steps)
    steps[2] = replace(steps[2], random="elsewhere")
    assert kinds(replace(swapped, steps=tuple(steps))) == ["random numbers"]


def test_free_steps_that_drift_further_than_stock_runs_do_are_noticed() -> None:
    assert kinds(run(SPREAD, drift=3 * DRIFT, hits=1)) == ["loss", "update norm"]
    assert kinds(run(SPREAD, drift=math.nan, hits=1)) == ["loss", "update norm"]


def test_a_parameter_that_now_and_then_moves_far_may_move_as_far_again() -> None:
    """In one of the stock runs it is 50 times as far off as in all others: 2 x 50 times their spread is no proof."""

    def in_free_steps(run_: Trained, off: float) -> Trained:
        steps = [
            replace(step, parameters=(parameter(0.0, False, off), *step.parameters[1:])) if k > FORCED_STEPS else step
            for k, step in enumerate(run_.steps)
        ]
        return replace(run_, steps=tuple(steps))

    often = [in_free_steps(one, DRIFT * (0.5 - 0.25 * i)) for i, one in enumerate(MOVED)]
    once = [in_free_steps(MOVED[0], 50 * DRIFT), *often[1:]]
    far = in_free_steps(run(SPREAD, hits=1), 120 * DRIFT)
    assert kinds(far, spread=often) == ["update norm"]
    assert kinds(far, spread=once) == []
    assert kinds(run(SPREAD, drift=120 * DRIFT, hits=1), spread=once) == ["loss", "update norm"]  # the other one too


def test_where_the_program_amplifies_rounding_only_the_forced_steps_decide() -> None:
    moved = [run(SPREAD, drift=0.1 * i) for i in range(5)]
    wild = equivalence(STOCK, moved, run(SPREAD, drift=2.0, hits=1))
    assert wild.findings == ()
    assert wild.amplified is not None
    assert not wild.amplified.decides
    assert kinds(run(50 * SPREAD, drift=2.0, hits=1), spread=moved) == ["gradient", "update", "state"]


def test_a_program_without_a_seed_for_its_data_is_not_repeatable() -> None:
    other = replace(STOCK, steps=tuple(replace(step, loss=5.0) for step in MOVED[0].steps))
    assert kinds(run(SPREAD, hits=1), spread=[other, *MOVED]) == ["not repeatable"]


def test_steps_without_a_swapped_call_prove_nothing() -> None:
    swapped = run(SPREAD, hits=1)
    idle = replace(swapped, steps=tuple(replace(step, hits={"qr": 0}) for step in swapped.steps))
    assert kinds(idle) == ["not compared"]


def test_a_swap_of_which_no_call_was_compared_is_named() -> None:
    """The other one's calls fall in each step; those of a refresh each tenth step do not."""
    swapped = run(SPREAD, hits=1)
    steps = tuple(replace(step, hits={**step.hits, "soap": 5}) for step in swapped.steps)
    served = (*swapped.swaps.served, Served("linalg_qr", "CPU", 9, {}, 0, 0, 0, "soap"))
    found = equivalence(STOCK, MOVED, replace(swapped, steps=steps, swaps=Swaps(served)))
    assert (found.findings, found.untouched) == ((), ("soap",))
    (note,) = notes(Swaps(served), found, None)
    assert note == "no call of soap fell in the steps that begin alike, so nothing is shown of it: give more --steps"


def test_a_swap_that_served_nothing_beside_one_that_did_is_named() -> None:
    idle = Served("linalg_qr", "CPU", 0, {}, 0, 0, 0, "qr")
    assert list(notes(Swaps((Served("_softmax", "CPU", 3, {}, 0, 0, 0, "mine"), idle)), None, None)) == [
        "qr served no call"
    ]
    assert list(notes(Swaps((idle,)), None, None)) == []


def test_a_program_that_ends_after_its_first_step_is_not_compared() -> None:
    def first(run_: Trained) -> Trained:
        return replace(run_, steps=run_.steps[:1])

    assert kinds(first(run(hits=1)), first(STOCK), list(map(first, MOVED))) == ["not compared"]


def test_a_program_that_ends_sooner_with_the_swaps_is_a_failure() -> None:
    (found,) = equivalence(STOCK, MOVED, replace(run(hits=1), steps=run(hits=1).steps[:3])).findings
    assert (found.kind, found.text) == ("crashed", "with the swaps the program ends after 3 steps, stock 8")
    sometimes = [replace(MOVED[0], steps=MOVED[0].steps[:6]), *MOVED[1:]]
    assert kinds(replace(run(SPREAD, hits=1), steps=run(SPREAD, hits=1).steps[:7]), spread=sometimes) == []


def test_other_parameters_with_the_swaps_are_a_failure() -> None:
    swapped = run(hits=1)
    steps = tuple(replace(step, parameters=step.parameters[:1]) for step in swapped.steps)
    assert kinds(replace(swapped, steps=steps)) == ["crashed"]


def test_other_parameters_are_a_failure_also_where_no_step_began_alike() -> None:
    swapped = run(leads=True, hits=1)
    steps = tuple(replace(step, parameters=step.parameters[:1]) for step in swapped.steps)
    assert kinds(replace(swapped, steps=steps)) == ["crashed"]


fractions = st.floats(1e-5, 1e-2)


@given(fractions, st.floats(0, FORCED))
def test_whatever_the_spread_up_to_four_times_of_it_is_rounding(off: float, factor: float) -> None:
    assert kinds(run(0.999 * factor * off, hits=1), spread=[run(off)]) == []


@given(fractions, st.floats(1.01, 1e3))
def test_whatever_the_spread_more_than_four_times_of_it_is_not(off: float, factor: float) -> None:
    assert kinds(run(FORCED * factor * off, hits=1), spread=[run(off)]) == ["gradient", "update", "state"]


@given(fractions, st.floats(0, FREE))
def test_up_to_twice_the_drift_of_stock_runs_is_the_same(drift: float, factor: float) -> None:
    assert kinds(run(drift=0.999 * factor * drift, hits=1), spread=[run(drift=drift)]) == []


@given(st.floats(0, 4 * EPS["float32"]))
def test_a_few_roundings_are_the_same_whatever_the_spread(off: float) -> None:
    assert kinds(run(off, hits=1), spread=[run()]) == []


@given(st.permutations(range(5)))
def test_the_order_of_the_spread_does_not_matter(order: list[int]) -> None:
    swapped = run(5 * SPREAD, drift=DRIFT, hits=1)
    assert equivalence(STOCK, [MOVED[i] for i in order], swapped) == equivalence(STOCK, MOVED, swapped)
