"""Inputs of a case from a seed: values, laid out in memory as the case says."""

import functools
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

from qrprof.kernels import structures
from qrprof.kernels.structures import Draw
from qrprof.planner.gate.records import ArgSpec, Plain, TaskCase
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.store import cache_folder

INTEGERS: Final = 8  # of integers that are no indices: -8 to 7
DECADES: Final = 3.0
OFFSET: Final = 100.0
FILES: Final = 2  # of samples that are kept open: a task has one
Args = tuple[Tensor | Plain, ...]


def fresh_seed() -> int:
    """A seed that nobody can know before it is used."""
    return secrets.randbits(62)


def draw(case: TaskCase, seed: int, device: str) -> Args:
    """The positional arguments of one call, the same for the same seed and device.

    Raises QrprofError where a captured matrix is gone.
    """
    generator = torch.Generator(device).manual_seed(seed)
    if case.samples:
        first: tuple[Tensor, ...] = (sample(case, generator),)
    elif case.structure in structures.STRUCTURES:
        first = (matrices(case, seed, device),)
    elif case.structure == REFLECTORS:
        first = reflectors(case, seed, device)
    else:
        first = ()
    kind = normal if first or case.structure is None else KINDS[case.structure]
    values = [*first, *(valued(spec, kind, generator) for spec in case.tensors[len(first) :])]
    scaled = [value * case.scale if value.is_floating_point() and case.scale != 1 else value for value in values]
    return case.args(
        [laid_out(value.to(dtype_of(spec)), spec) for value, spec in zip(scaled, case.tensors, strict=True)]
    )


# --- values


def valued(spec: ArgSpec, kind: "Kind", generator: torch.Generator) -> Tensor:
    """Values of one tensor, contiguous: floats as `kind` has them, indices, integers or truths."""
    dtype, device = dtype_of(spec), generator.device
    if dtype.is_floating_point:
        drawn_in = torch.float64 if dtype is torch.float64 else torch.float32
        return kind(spec.shape, Draw(generator, device, drawn_in, cond=0)).to(dtype)
    low, high = (0, spec.below) if spec.below is not None else (0, 2) if dtype is torch.bool else (-INTEGERS, INTEGERS)
    low = max(low, 0) if dtype is torch.uint8 else low
    return torch.randint(low, high, spec.shape, generator=generator, device=device).to(dtype)


Kind = Callable[[tuple[int, ...], Draw], Tensor]


def normal(shape: tuple[int, ...], draw: Draw) -> Tensor:
    return draw.normal(*shape)


def uniform(shape: tuple[int, ...], draw: Draw) -> Tensor:
    """From 0 to 1."""
    return torch.rand(shape, generator=draw.generator, device=draw.device, dtype=draw.dtype)


def wide(shape: tuple[int, ...], draw: Draw) -> Tensor:
    """Magnitudes over six decades."""
    return draw.normal(*shape) * 10 ** (DECADES * (2 * uniform(shape, draw) - 1))


def offset(shape: tuple[int, ...], draw: Draw) -> Tensor:
    """Far from zero: a variance as E[x^2] - E[x]^2 loses its digits."""
    return draw.normal(*shape) + OFFSET


def sparse(shape: tuple[int, ...], draw: Draw) -> Tensor:
    """Nine of ten numbers are zero."""
    return draw.normal(*shape) * (uniform(shape, draw) < 0.1)


def constant(shape: tuple[int, ...], draw: Draw) -> Tensor:
    """The same number everywhere in a row."""
    return draw.normal(*shape[:-1], 1).expand(shape) if shape else draw.normal()


def one_bad(shape: tuple[int, ...], draw: Draw) -> Tensor:
    """Normal, but one number is NaN or infinite."""
    values = draw.normal(*shape)
    if values.numel():
        bad = torch.tensor([torch.nan, torch.inf, -torch.inf], device=draw.device, dtype=draw.dtype)
        values.view(-1)[draw.integers(values.numel(), 1)] = bad[draw.integers(len(bad), 1)]
    return values


def definite(shape: tuple[int, ...], draw: Draw) -> Tensor:
    """Symmetric positive definite."""
    root = draw.normal(*shape)
    return root @ root.mT / max(1, shape[-1]) + torch.eye(shape[-1], device=draw.device, dtype=draw.dtype)


REFLECTORS: Final = "reflectors"
KINDS: Mapping[str, Kind] = MappingProxyType(
    {kind.__name__: kind for kind in (normal, uniform, wide, offset, sparse, constant, one_bad, definite)}
)


def matrices(case: TaskCase, seed: int, device: str) -> Tensor:
    """A batch of any rank of one of the structures of `kernels`."""
    spec = case.tensors[0]
    *batch, m, n = spec.shape
    made = structures.make(
        case.structure or "dense",
        torch.Size(batch).numel(),
        m,
        n,
        cond=case.cond,
        seed=seed,
        device=device,
        dtype=dtype_of(spec),
    )
    return made.reshape(spec.shape)


def reflectors(case: TaskCase, seed: int, device: str) -> tuple[Tensor, ...]:
    """H and tau of matrices of normal numbers, as `geqrf` gives them."""
    specs = case.tensors[:2]
    found = torch.geqrf(matrices(replace(case, structure="dense"), seed, device).double())
    return tuple(value.to(dtype_of(spec)).reshape(spec.shape) for value, spec in zip(found, specs, strict=True))


def sample(case: TaskCase, generator: torch.Generator) -> Tensor:
    """A captured batch with the signs of its rows and columns and the order of its matrices drawn anew.

    Rank, conditioning and the sizes of rows and columns stay, to the bit; its numbers are not those of a file.
    """
    captured = load_sample(case.samples[pick(len(case.samples), generator)]).to(generator.device)
    *_, m, n = captured.shape
    flat = captured.reshape(-1, m, n)
    order = torch.randperm(len(flat), generator=generator, device=generator.device)
    rows, columns = (signs(len(flat), count, generator) for count in (m, n))
    mixed = flat[order] * rows.unsqueeze(-1).to(flat.dtype) * columns.unsqueeze(-2).to(flat.dtype)
    return mixed.reshape(captured.shape)


def signs(batch: int, count: int, generator: torch.Generator) -> Tensor:
    return 1 - 2 * torch.randint(2, (batch, count), generator=generator, device=generator.device)


def pick(count: int, generator: torch.Generator) -> int:
    return int(torch.randint(count, (), generator=generator, device=generator.device))


def load_sample(name: str) -> Tensor:
    """The captured tensor called "FILE#KEY". Raises QrprofError where it is gone."""
    file, _, key = name.partition("#")
    path = cache_folder() / "samples" / file
    try:
        return mapped(path, path.stat().st_mtime_ns)[key]
    except (OSError, RuntimeError, KeyError):
        raise QrprofError(f"the captured matrix {key!r} is not in {path} any more; make the task anew") from None


@functools.lru_cache(maxsize=FILES)
def mapped(path: Path, changed_ns: int) -> Mapping[str, Tensor]:
    """The tensors in a file of samples that was last changed then. Kept: to open it takes longer than a small one."""
    found: Mapping[str, Tensor] = torch.load(path, weights_only=True, mmap=True)
    return found


# --- memory


def dtype_of(spec: ArgSpec) -> torch.dtype:
    found: torch.dtype = getattr(torch, spec.dtype)
    return found


def laid_out(values: Tensor, spec: ArgSpec) -> Tensor:
    """The values in the case's strides. What lies between them in memory is NaN: nobody may use it."""
    if spec.stride is None or values.numel() == 0:
        return values.contiguous()
    stored = tuple(1 if step == 0 else size for size, step in zip(spec.shape, spec.stride, strict=True))
    span = 1 + sum((size - 1) * step for size, step in zip(stored, spec.stride, strict=True))
    gaps = torch.nan if values.is_floating_point() else 0
    memory = torch.full((span,), gaps, dtype=values.dtype, device=values.device)
    placed = memory.as_strided(stored, spec.stride)
    placed.copy_(values[tuple(slice(size) for size in stored)])
    return placed.as_strided(spec.shape, spec.stride)


def can_hold(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether no two numbers share a place in memory, but for expanded sizes (stride 0)."""
    reach = 0
    for step, size in sorted((step, size) for size, step in zip(shape, stride, strict=True) if size > 1 and step):
        if step <= reach:
            return False
        reach += step * (size - 1)
    return True


def perturb(args: Args, seed: int) -> Args:
    """The arguments with one number of one float tensor changed, by more than the mean size of the tensor's numbers.

    Which one is drawn from the seed. The other tensors are the same objects; without float tensors, all are.
    """
    generator = torch.Generator().manual_seed(seed)
    tensors = [(at, value) for at, value in enumerate(args) if isinstance(value, Tensor)]
    floats = [at for at, value in tensors if value.is_floating_point() and value.numel()]
    if not floats:
        return args
    return perturbed(args, floats[pick(len(floats), generator)], generator)


def perturbed(args: Args, at: int, generator: torch.Generator) -> Args:
    """With one number of the tensor `args[at]` changed; its strides stay."""
    old = args[at]
    assert isinstance(old, Tensor)
    place = tuple(pick(size, generator) for size in old.shape)
    stored = tuple(1 if step == 0 else size for size, step in zip(old.shape, old.stride(), strict=True))
    spec = ArgSpec(tuple(old.shape), str(old.dtype).removeprefix("torch."), tuple(old.stride()))
    new = laid_out(old, spec)
    here = new[tuple(slice(size) for size in stored)]
    number = here[tuple(i if size > 1 else 0 for i, size in zip(place, stored, strict=True))]
    size = old.abs().nan_to_num(0.0, 0.0, 0.0).double().mean().clamp_min(torch.finfo(old.dtype).smallest_normal)
    sign = torch.where(number < 0, -1.0, 1.0)
    number.copy_(-number.nan_to_num(0.0, 0.0, 0.0) - sign * size)
    return (*args[:at], new, *args[at + 1 :])
