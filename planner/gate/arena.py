"""Memory that the gate and a candidate's process both see, and how tensors lie in it.

An arena is one block of bytes behind a file descriptor, which crosses the channel. On a CPU it is a memfd that can no
longer change its size: a shorter file would kill whoever reads the rest of it.
"""

import fcntl
import math
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

DTYPES = {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
APART = 512  # bytes: each tensor begins at a multiple, as in torch's own allocator
FENCE = 64  # bytes at least between two tensors
ROOMY = 1 << 28  # bytes up to which new memory is made with room to spare
UNWRITTEN = 0xFF  # NaN in every floating-point dtype
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@dataclass(frozen=True)
class Place:
    """Where a tensor lies: `start` in bytes, the rest in elements."""

    start: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """From the first to the last, with what lies between them."""
        return extent(self.shape, self.stride)

    @property
    def end(self) -> int:
        return self.start + self.elements * DTYPES[self.dtype].itemsize


@dataclass(frozen=True)
class Row:
    """Where tensors of one form lie, one every `step` bytes; `members` are their numbers."""

    start: int
    step: int
    shape: Sequence[int]
    dtype: torch.dtype
    members: list[int]

    @property
    def end(self) -> int:
        return self.start + self.step * len(self.members)

    @property
    def starts(self) -> dict[int, int]:
        """By member."""
        return {member: self.start + place * self.step for place, member in enumerate(self.members)}


class Arena(Protocol):
    fd: int

    @property
    def data(self) -> Tensor:
        """All of it, as bytes."""

    def part(self, start: int, elements: int, dtype: torch.dtype) -> Tensor:
        """What begins at byte `start`, as a flat tensor with a storage of its own that holds no more than that."""


def extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    return 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def lay_out(tensors: Sequence[Tensor]) -> list[Place]:
    """A place for each tensor, with its own strides, and its own address within a cache line."""
    places, end = list[Place](), 0
    for tensor in tensors:
        start = aligned(end) + tensor.data_ptr() % FENCE
        places.append(Place(start, tuple(tensor.shape), tensor.stride(), name_of(tensor.dtype)))
        end = places[-1].end
    return places


def lay_out_dense(tensors: Sequence[Tensor]) -> list[Row]:
    """Rows for tensors in C order."""
    members: dict[tuple[torch.Size, torch.dtype], list[int]] = {}
    for number, tensor in enumerate(tensors):
        members.setdefault((tensor.shape, tensor.dtype), []).append(number)
    rows, end = list[Row](), 0
    for (shape, dtype), numbers in members.items():
        rows.append(Row(end, aligned(math.prod(shape) * dtype.itemsize), shape, dtype, numbers))
        end = rows[-1].end
    return rows


def store(rows: Sequence[Row], data: Tensor, tensors: Sequence[Tensor]) -> None:
    """Copy tensors to their places in bytes."""
    for row in rows:
        if 0 not in row.shape:
            block = data[row.start : row.end].view(row.dtype)
            stride = (row.step // row.dtype.itemsize, *dense(row.shape))
            places = block.as_strided((len(row.members), *row.shape), stride).unbind()
            torch._foreach_copy_(list(places), [tensors[member] for member in row.members])


def aligned(end: int) -> int:
    return -(-(end + FENCE) // APART) * APART


def size_of(places: Sequence[Place]) -> int:
    """Bytes of an arena that holds them."""
    return aligned(places[-1].end if places else 0)


def with_room(size: int) -> int:
    """Bytes of new memory for `size`: requests differ in size, and it should not be made anew while the clock runs."""
    return max(size, 1 << (size - 1).bit_length()) if size <= ROOMY else size


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= max(size, 1)
    return tuple(reversed(stride))


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def fill(data: Tensor, places: Sequence[Place], tensors: Sequence[Tensor]) -> None:
    """Write tensors, and what lies between their elements, into bytes laid out for them."""
    data.fill_(UNWRITTEN)
    for place, tensor in zip(places, tensors, strict=True):
        if place.elements:
            flat = tensor.detach().as_strided((place.elements,), (1,))
            data[place.start : place.end].copy_(flat.view(torch.uint8))


def tensor_at(arena: Arena, place: Place) -> Tensor:
    """The tensor that lies there: no view of another, and with a storage of its own."""
    dtype, elements = DTYPES[place.dtype], place.elements
    if not elements:
        return torch.empty_strided(place.shape, place.stride, dtype=dtype, device=arena.data.device)
    return arena.part(place.start, elements, dtype).as_strided_(place.shape, place.stride)


def make(size: int, device: str) -> Arena:
    if device == "cpu":
        fd = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        return CpuArena(fd, size)
    from qrprof.planner.gate.cuda_arena import CudaArena

    return CudaArena.made(size)


def attach(fd: int, size: int, device: str) -> Arena:
    """The arena behind a descriptor that came from the other side, which it takes over.

    Raises ValueError where it is none, or not as large as `size`.
    """
    if device == "cpu":
        return CpuArena(fd, size)
    from qrprof.planner.gate.cuda_arena import CudaArena

    return CudaArena.attached(fd, size)


class CpuArena:
    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        try:
            sealed = fcntl.fcntl(fd, fcntl.F_GET_SEALS) & SEALS == SEALS
        except OSError:
            sealed = False
        if not sealed or not 0 < size <= os.fstat(fd).st_size:
            raise ValueError("a block of memory that is none, too small, or not sealed")
        self.map = mmap.mmap(fd, size)
        self.data = torch.frombuffer(self.map, dtype=torch.uint8)

    def part(self, start: int, elements: int, dtype: torch.dtype) -> Tensor:
        return torch.frombuffer(self.map, dtype=dtype, offset=start, count=elements)

    def __del__(self) -> None:
        os.close(self.fd)
