"""Tensors in memory that two processes see: their bytes, strides and addresses; what is no such memory is refused."""

import fcntl
import os
from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from qrprof.planner.gate import arena
from qrprof.planner.gate.arena import DTYPES, Arena, Place

NAMES = ["float32", "float64", "bfloat16", "float16", "int64", "int8", "bool", "complex64"]


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Of any layout that indexing and expanding makes."""
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    dtype = DTYPES[draw(st.sampled_from(NAMES))]
    full = torch.randint(0, 2, [size + draw(st.integers(0, 2)) for size in shape]).to(dtype)
    tensor = full[tuple(slice(full.shape[axis] - size, None) for axis, size in enumerate(shape))]
    if draw(st.booleans()):
        tensor = tensor.permute(draw(st.permutations(range(tensor.ndim))))
    if draw(st.booleans()):
        tensor = tensor.expand(2, *tensor.shape)
    return tensor


def shared(values: Sequence[Tensor]) -> tuple[Arena, list[Place]]:
    places = arena.lay_out(values)
    block = arena.make(arena.size_of(places), "cpu")
    arena.fill(block.data, places, values)
    return block, places


@given(st.lists(tensors(), max_size=5))
def test_the_other_side_sees_the_same_tensors(values: list[Tensor]) -> None:
    block, places = shared(values)
    other = arena.attach(os.dup(block.fd), len(block.data), "cpu")
    for value, place in zip(values, places, strict=True):
        seen = arena.tensor_at(other, place)
        assert (seen.dtype, seen.shape, seen.stride()) == (value.dtype, value.shape, value.stride())
        assert torch.equal(seen, value)
        if value.numel():
            assert seen.data_ptr() % arena.FENCE == value.data_ptr() % arena.FENCE


@given(st.lists(tensors(), max_size=5))
def test_each_tensor_is_apart_from_the_others(values: list[Tensor]) -> None:
    _, places = shared(values)
    spans = [(place.start, place.end) for place in places]
    assert all(later[0] - earlier[1] >= arena.FENCE for earlier, later in pairwise(spans))
    assert all(end <= arena.size_of(places) for _, end in spans)


def test_a_tensor_is_no_view_and_holds_no_more_than_itself() -> None:
    block, places = shared([torch.ones(3, 4), torch.ones(5)])
    first = arena.tensor_at(block, places[0])
    assert not first._is_view()
    assert first.untyped_storage().nbytes() == 48
    assert first.storage_offset() == 0


def test_what_lies_between_tensors_reads_as_nan() -> None:
    block, places = shared([torch.ones(3), torch.ones(3)])
    between = block.data[places[0].end : places[0].end + 8].view(torch.float32)
    assert between.isnan().all()


def test_writing_is_seen_at_once_on_both_sides() -> None:
    block, (place,) = shared([torch.zeros(2)])
    other = arena.attach(os.dup(block.fd), len(block.data), "cpu")
    arena.tensor_at(other, place).fill_(3)
    assert arena.tensor_at(block, place).tolist() == [3, 3]


def test_a_block_can_no_longer_be_cut() -> None:
    block = arena.make(4096, "cpu")
    with pytest.raises(PermissionError):
        os.ftruncate(block.fd, 0)


@pytest.mark.parametrize(
    ("seals", "size"), [(0, 4096), (arena.SEALS & ~fcntl.F_SEAL_SHRINK, 4096), (arena.SEALS, 8192), (arena.SEALS, 0)]
)
def test_a_block_that_could_be_cut_or_is_too_small_is_refused_and_closed(seals: int, size: int) -> None:
    fd = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    with pytest.raises(ValueError, match="block of memory"):
        arena.attach(fd, size, "cpu")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_pipe_is_no_block() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    with pytest.raises(ValueError, match="block of memory"):
        arena.attach(reader, 1, "cpu")


@given(st.lists(tensors(), max_size=8))
def test_tensors_of_one_form_are_stored_together_and_apart(values: list[Tensor]) -> None:
    rows = arena.lay_out_dense(values)
    data = torch.empty(rows[-1].end if rows else 0, dtype=torch.uint8)
    arena.store(rows, data, values)
    starts = {member: start for row in rows for member, start in row.starts.items()}
    assert sorted(starts) == list(range(len(values)))
    for member, value in enumerate(values):
        assert starts[member] % arena.APART == 0
        kept = data[starts[member] : starts[member] + value.numel() * value.itemsize]
        assert torch.equal(kept.view(value.dtype).view(value.shape), value)
    spans = sorted((starts[member], starts[member] + value.nbytes) for member, value in enumerate(values))
    assert all(later[0] - earlier[1] >= arena.FENCE for earlier, later in pairwise(spans) if earlier[1] > earlier[0])


@given(st.lists(st.integers(0, 5), max_size=4))
def test_dense_strides_are_torchs(shape: list[int]) -> None:
    assert arena.dense(shape) == torch.empty(shape).stride()
