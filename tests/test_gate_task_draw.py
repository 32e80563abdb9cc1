"""Inputs drawn from a seed: the case's form to the letter, other numbers for other seeds, and one number changed."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gate_tasks import GENERIC, case
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from qrprof.kernels import structures
from qrprof.planner.gate.draw import KINDS, REFLECTORS, Args, can_hold, draw, fresh_seed, laid_out, perturb
from qrprof.planner.gate.records import ArgSpec, TaskCase
from qrprof.profiler.store import cache_folder


def tensors(args: Args) -> list[Tensor]:
    return [one for one in args if isinstance(one, Tensor)]


def first(args: Args) -> Tensor:
    return tensors(args)[0]


def bits(x: Tensor) -> Tensor:
    return x.reshape(-1).contiguous().view(torch.uint8)


SPECS = st.tuples(
    st.lists(st.integers(1, 5), max_size=3).map(tuple),
    st.sampled_from(("float32", "float64", "bfloat16", "float16", "int64", "uint8", "bool")),
).map(lambda drawn: ArgSpec(*drawn))


@given(spec=SPECS, seed=st.integers(0, 2**62), kind=st.sampled_from([None, *sorted(set(KINDS) - {"definite"})]))
def test_the_same_seed_draws_the_same_bits_in_the_cases_form(spec: ArgSpec, seed: int, kind: str | None) -> None:
    one = TaskCase("case", 1.0, (spec,), structure=kind)
    a, b = first(draw(one, seed, "cpu")), first(draw(one, seed, "cpu"))
    assert torch.equal(bits(a), bits(b))
    assert (tuple(a.shape), str(a.dtype)) == (spec.shape, f"torch.{spec.dtype}")
    assert a.is_contiguous()


@pytest.mark.parametrize("task", GENERIC, ids=lambda task: task.op)
def test_another_seed_draws_other_numbers_for_every_tensor(task: object) -> None:
    (one,) = task.development  # type: ignore[attr-defined]
    pairs = zip(*(tensors(draw(one, seed, "cpu")) for seed in (1, 2)), strict=True)
    assert all(not torch.equal(a, b) for a, b in pairs)


def test_seeds_are_never_the_same() -> None:
    assert len({fresh_seed() for _ in range(100)}) == 100


def test_plain_values_stand_where_the_layout_has_them() -> None:
    x, shape, w, b, eps = draw(case((3, 4), (4,), (4,), plain=((4,), 0.5), layout="tpttp"), 1, "cpu")
    assert (shape, eps) == ((4,), 0.5)
    assert all(isinstance(one, Tensor) for one in (x, w, b))


@given(
    rows=st.integers(1, 5),
    columns=st.integers(1, 5),
    gap=st.integers(0, 3),
    swapped=st.booleans(),
    dtype=st.sampled_from(("float32", "float64", "float16")),
)
def test_strides_are_the_cases_and_gaps_hold_nan(rows: int, columns: int, gap: int, swapped: bool, dtype: str) -> None:
    stride = (1, rows + gap) if swapped else (columns + gap, 1)
    values = torch.randn(rows, columns).to(getattr(torch, dtype))
    placed = laid_out(values, ArgSpec((rows, columns), dtype, stride))
    assert placed.stride() == stride
    assert torch.equal(placed, values)
    memory = torch.empty(0, dtype=values.dtype).set_(placed.untyped_storage())
    assert int(memory.isnan().sum()) == len(memory) - rows * columns


def test_an_expanded_size_stays_one_in_memory() -> None:
    placed = laid_out(torch.randn(4, 3), ArgSpec((4, 3), "float32", (0, 1)))
    assert placed.stride() == (0, 1)
    assert placed.untyped_storage().nbytes() == 12


def test_numbers_that_would_share_a_place_are_seen() -> None:
    assert can_hold((4, 3), (3, 1))
    assert can_hold((4, 3), (0, 1))
    assert can_hold((4, 1, 3), (3, 1, 1))  # a size of one has no step
    assert not can_hold((4, 3), (1, 1))
    assert not can_hold((4, 3), (2, 1))


def test_indices_stay_below_their_bound() -> None:
    one = TaskCase("places", 1.0, (ArgSpec((400,), "int64", below=3),))
    assert set(first(draw(one, 5, "cpu")).tolist()) == {0, 1, 2}


def test_a_scale_multiplies_floats_alone() -> None:
    one = TaskCase("mixed", 1.0, (ArgSpec((9,), "float32"), ArgSpec((9,), "int32")))
    for plain, scaled in zip(
        tensors(draw(one, 4, "cpu")), tensors(draw(replace(one, scale=4.0), 4, "cpu")), strict=True
    ):
        factor = 4 if plain.is_floating_point() else 1
        assert torch.equal(scaled, plain * factor)


@pytest.mark.parametrize("structure", ["dense", "mixed", "rankdef", "tiny_column"])
def test_structures_of_matrices_are_those_of_the_kernels(structure: str) -> None:
    drawn = first(draw(case((2, 3, 6, 5), structure=structure, cond=2.0), 9, "cpu"))
    made = structures.make(structure, 6, 6, 5, cond=2, seed=9, device="cpu")
    assert torch.equal(drawn.view(6, 6, 5), made)


def test_kinds_are_what_they_are_called() -> None:
    drawn = {kind: first(draw(case((40, 30), structure=kind), 3, "cpu")) for kind in sorted(set(KINDS) - {"definite"})}
    assert 0 <= float(drawn["uniform"].min()) < float(drawn["uniform"].max()) < 1
    assert float(drawn["offset"].mean()) == pytest.approx(100, abs=1)
    assert 0.02 < float((drawn["sparse"] != 0).float().mean()) < 0.3
    assert torch.equal(drawn["constant"], drawn["constant"][:, :1].expand(40, 30))
    assert int((~drawn["one_bad"].isfinite()).sum()) == 1
    assert float(drawn["wide"].abs().max()) > 100
    assert float(drawn["wide"].abs().median()) < 10
    definite = first(draw(case((3, 8, 8), structure="definite"), 3, "cpu"))
    assert torch.equal(definite, definite.mT)
    assert bool((torch.linalg.eigvalsh(definite.double()) > 0).all())


def test_reflectors_make_an_orthogonal_matrix() -> None:
    h, tau = tensors(draw(case((2, 8, 5), (2, 5), structure=REFLECTORS), 3, "cpu"))
    q = torch.linalg.householder_product(h.double(), tau.double())
    assert torch.allclose(q.mT @ q, torch.eye(5, dtype=torch.float64).expand(2, 5, 5), atol=1e-5)


@given(seed=st.integers(0, 2**40), strided=st.booleans())
def test_perturb_changes_one_number_of_one_tensor_by_more_than_the_usual_size(seed: int, strided: bool) -> None:
    spec = ArgSpec((4, 3), "float32", (1, 5) if strided else None)
    args = draw(TaskCase("two", 1.0, (spec, ArgSpec((2,), "int64")), (7,)), 3, "cpu")
    before = first(args).clone()
    changed = perturb(args, seed)
    assert torch.equal(first(args), before)  # the old arguments stay
    assert changed[1] is args[1]
    assert changed[2] == 7
    new = first(changed)
    assert new.stride() == first(args).stride()
    moved = (new - before).abs()
    assert int((moved > 0).sum()) == 1
    assert float(moved.max()) > 0.99 * float(before.abs().mean())


def test_arguments_without_floats_are_left_alone() -> None:
    args = draw(TaskCase("whole", 1.0, (ArgSpec((3,), "int64"),)), 1, "cpu")
    assert perturb(args, 5) is args


def test_a_file_of_captured_matrices_is_opened_once_and_again_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, load = list[Path](), torch.load

    def counted(path: Path, **options: Any) -> Any:
        opened.append(path)
        return load(path, **options)

    monkeypatch.setattr(torch, "load", counted)
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path))
    file = cache_folder() / "samples" / "run.pt"
    file.parent.mkdir(parents=True)
    captured = replace(case((3, 3)), samples=("run.pt#a",))
    for number in (1.0, 2.0):
        torch.save({"a": torch.full((3, 3), number)}, file)
        os.utime(file, (number, number))
        for seed in range(5):
            assert torch.equal(first(draw(captured, seed, "cpu")).abs(), torch.full((3, 3), number))
    assert opened == [file, file]
