"""The sealed holdout and the null answers: what no candidate sees, and what no task may accept."""

import random
from dataclasses import replace

import pytest
import torch
from gate_tasks import ADDMM, GELU, GENERIC, LAYER_NORM, MM, SOFTMAX, case, task
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qrprof.planner.gate.check import Args, check, stock
from qrprof.planner.gate.draw import draw
from qrprof.planner.gate.holdout import holdout_cases, packed, takes, verdict, with_sizes
from qrprof.planner.gate.nulls import Answer, null_answers, require_judgeable, weaknesses
from qrprof.planner.gate.qr_task import built_in
from qrprof.planner.gate.records import ArgSpec, Domain, Task, TaskCase
from qrprof.planner.gate.task import domain
from qrprof.profiler.errors import Exit, QrprofError

SETS = (
    built_in("small", "geqrf", "cpu"),
    built_in("small", "linalg_qr", "cpu"),
    built_in("contest-32", "geqrf", "cpu"),
)
CLAIMING = tuple(replace(one, domain=domain(one.development)) for one in GENERIC)
TASKS = pytest.mark.parametrize("op", [*CLAIMING, *SETS], ids=lambda op: op.op)


def drawn(op: Task, seed: int, count: int) -> tuple[TaskCase, ...]:
    return holdout_cases(op, random.Random(seed), count)


@TASKS
def test_the_stock_op_passes_every_holdout_case(op: Task) -> None:
    for one in drawn(op, 3, 24):
        args = draw(one, 17, "cpu")
        right = stock(op, args)
        assert check(op, one, args, right, right, "holdout") == []


@TASKS
def test_holdout_cases_are_neighbours_inside_the_domain(op: Task) -> None:
    found = drawn(op, 5, 60)
    assert len({one.name for one in found}) == 60
    claimed = {None, *op.domain.structures, *(one.structure for one in op.development)}
    most = max(spec.elements for one in op.development for spec in one.tensors)
    for one in found:
        assert one.structure in claimed
        assert all(spec.elements <= most for spec in one.tensors)
        assert all(spec.dtype == "float32" for spec in one.tensors)
    for what in ("tensors", "structure", "scale"):
        assert len({getattr(one, what) for one in found}) > 2, what
    assert any(spec.stride for one in found for spec in one.tensors)


def test_another_query_draws_other_cases() -> None:
    assert drawn(SOFTMAX, 1, 6) == drawn(SOFTMAX, 1, 6)
    assert drawn(CLAIMING[0], 1, 6) != drawn(CLAIMING[0], 2, 6)


def sizes_of(op: Task, count: int = 60) -> set[tuple[tuple[int, ...], ...]]:
    return {tuple(spec.shape for spec in one.tensors) for one in drawn(op, 8, count)}


def test_a_smaller_first_size_takes_with_it_what_must_be_alike() -> None:
    assert all(shapes == ((rows, 40), (40,), (40,)) for shapes in sizes_of(LAYER_NORM) for rows in [shapes[0][0]])
    assert all(shapes == ((rows, 96), (96, 8)) for shapes in sizes_of(MM) for rows in [shapes[0][0]])
    assert all(shapes == ((8,), (rows, 64), (64, 8)) for shapes in sizes_of(ADDMM) for rows in [shapes[1][0]])
    both = task("gelu_backward", case((9, 9), (9, 9), plain=("none",)))
    assert all(a == b for a, b in sizes_of(both))
    assert len(sizes_of(MM)) > 3


def test_a_lane_keeps_its_matrices_size_and_the_small_set_does_not() -> None:
    assert {shapes[0][1:] for shapes in sizes_of(SETS[2])} == {(32, 32)}
    assert len({shapes[0][1:] for shapes in sizes_of(SETS[0])}) > 8


def test_a_domain_of_the_cases_alone_changes_nothing() -> None:
    fixed = replace(GELU, domain=Domain("none", strided=False))
    for one in drawn(fixed, 1, 10):
        assert replace(one, name="") == replace(fixed.development[0], name="")


def test_captured_matrices_that_development_never_sees_come_first() -> None:
    one = replace(case((2, 4, 4), structure="dense"), samples=("f.pt#a",), held=("f.pt#b", "f.pt#c"))
    first, *others = drawn(task("geqrf", one, checker="qr"), 1, 4)
    assert first.samples == ("f.pt#b", "f.pt#c")
    assert all(not other.samples for other in others)
    assert all("f.pt#a" not in other.samples for other in [first, *others])


def test_of_a_query_only_the_outcome_is_told() -> None:
    assert verdict(True) == []
    (told,) = verdict(False)
    assert (told.detector, told.outcome, told.case, told.stage) == ("seed-known", "FAIL", None, "holdout")


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple),
    order=st.permutations(range(1, 5)),
)
def test_packed_strides_leave_no_gap_and_keep_the_order(shape: tuple[int, ...], order: list[int]) -> None:
    wanted = tuple(order[: len(shape)])
    steps = packed(shape, wanted)
    storage = torch.empty(0).set_(torch.empty_strided(shape, steps).untyped_storage())
    assert len(storage) == torch.Size(shape).numel()
    ranked = sorted(range(len(shape)), key=lambda at: wanted[at])
    assert [steps[at] for at in ranked] == sorted(steps)


def test_sizes_change_in_lists_of_plain_values_and_in_bounds_too() -> None:
    one = TaskCase("x", 1.0, (ArgSpec((6, 4), "float32", (1, 6)), ArgSpec((3,), "int64", None, 6)))
    one = replace(one, plain=((6, 4), 6, 0.5, (6.0, 4.0)))
    found = with_sizes(one, {6: 2})
    assert found.tensors == (ArgSpec((2, 4), "float32", (1, 2)), ArgSpec((3,), "int64", None, 2))
    assert found.plain == ((2, 4), 6, 0.5, (6.0, 4.0))


def test_what_the_stock_op_refuses_is_no_case() -> None:
    assert takes("mm", case((2, 3), (3, 4)))
    assert not takes("mm", case((2, 3), (2, 4)))
    assert takes("geqrf", case((2, 3, 3)))  # torch cannot say without computing


# --- null answers


def answer(op: Task) -> Answer:
    return lambda args: stock(op, args)


@TASKS
def test_usual_tasks_accept_no_null_answer_and_notice_a_change(op: Task) -> None:
    assert weaknesses(op, answer(op)) == []


def test_a_case_of_zeros_accepts_zeros() -> None:
    op = task("mm", replace(MM.development[0], scale=0.0))
    told = weaknesses(op, answer(op))
    assert [(one.detector, one.outcome, one.stage) for one in told][:1] == [("null-answer", "UNKNOWN", "null")]
    assert "accept zeros and" in told[0].detail
    with pytest.raises(QrprofError, match="no task for aten::mm: the checks accept zeros") as error:
        require_judgeable(op, 1 << 20)
    assert error.value.exit_code == Exit.USAGE


def test_an_op_that_ignores_its_input_is_insensitive() -> None:
    op = task("mul.Tensor", case((4, 4), (4, 4)))
    args: list[Args] = []

    def same(given: Args) -> tuple[Tensor, ...]:
        args.append(given)
        return (torch.full((4, 4), torch.nan),)

    told = weaknesses(op, same)
    assert "insensitive" in {one.detector for one in told}
    assert len(args) == 2 + 8  # two draws, and every change


def test_a_change_that_relu_ignores_is_tried_again() -> None:
    op = task("relu", case((8, 8)))
    assert weaknesses(op, answer(op)) == []


def test_null_answers_have_the_form_of_the_right_one() -> None:
    one = LAYER_NORM.development[0]
    args, other = draw(one, 1, "cpu"), draw(one, 2, "cpu")
    right, previous = stock(LAYER_NORM, args), stock(LAYER_NORM, other)
    found = dict(null_answers(args, right, previous))
    assert set(found) == {
        "zeros",
        "ones",
        "NaN",
        "the answer to another input",
        "the mean of the right answer",
        "the input",
    }
    for outputs in found.values():
        assert [(x.shape, x.dtype) for x in outputs] == [(x.shape, x.dtype) for x in right]
    assert found["the input"][0] is args[0]


def test_a_single_number_is_its_own_mean() -> None:
    args = (torch.ones(5), (0,), False, None)
    total = (torch.tensor(5.0),)
    assert "the mean of the right answer" not in dict(null_answers(args, total, total))


def test_what_torch_refuses_is_no_task() -> None:
    op = task("mm", case((2, 3), (2, 4)))
    with pytest.raises(QrprofError, match=r"no task for aten::mm: of drawn inputs torch says '.*\(case 2x3 2x4\)"):
        require_judgeable(op, 1 << 20)
    assert require_judgeable(op, 1) is op  # too large to try: left to the gate


def test_an_op_without_a_float64_form_cannot_be_judged() -> None:
    op = task("_weight_int8pack_mm", case((2, 16), (8, 16), (8,)))
    one = replace(
        op.development[0], tensors=(op.development[0].tensors[0], ArgSpec((8, 16), "int8"), ArgSpec((8,), "float32"))
    )
    with pytest.raises(
        QrprofError, match=r"aten::_weight_int8pack_mm cannot be judged: of its form in float64 torch says"
    ):
        require_judgeable(replace(op, development=(one,)), 1 << 20)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**40))
def test_weaknesses_are_not_a_matter_of_luck(seed: int) -> None:
    seeds = iter(range(seed, seed + 100))
    assert weaknesses(SOFTMAX, answer(SOFTMAX), lambda: next(seeds)) == []
