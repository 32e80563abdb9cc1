"""The sealed holdout: cases that exist only once the candidate is frozen, answered by pass or fail alone."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeGuard

import torch
from torch import Tensor

from qrprof.kernels import structures
from qrprof.planner.gate.aten_task import call
from qrprof.planner.gate.records import ArgSpec, Finding, Plain, Task, TaskCase

CASES: Final = 6  # of a query
OWN_SCALE: Final = frozenset({"huge", "denormal", "tiny_column"})  # structures at the edge of the dtype's range
PAD: Final = 3  # elements between rows of a strided input
Change = Callable[[TaskCase, Task, random.Random], TaskCase]


def holdout_cases(task: Task, rng: random.Random, count: int = CASES) -> tuple[TaskCase, ...]:
    """Neighbours of the development cases inside the task's domain, `count` of them, another set each time.

    Each differs from its neighbour in one or more of: sizes, strides, structure, scale; and captured matrices that
    development never sees come first. Every case is one that the stock op takes. `rng` is seeded privately, after the
    candidate was frozen.
    """
    held = [case for case in task.development if case.held]
    found = [replace(case, name=f"holdout {case.name}", samples=case.held) for case in held[: count // 2]]
    while len(found) < count:
        near = rng.choices(task.development, weights=[max(case.weight, 0.01) for case in task.development])[0]
        found.append(neighbour(near, task, rng))
    return tuple(replace(case, name=f"{case.name} #{number}") for number, case in enumerate(found, 1))


def neighbour(case: TaskCase, task: Task, rng: random.Random) -> TaskCase:
    """`case` with changes that the stock op takes; with none where it takes no change."""
    plain = replace(case, name=f"holdout {case.name}", samples=(), held=())
    changed = plain
    for change in rng.sample(CHANGES, rng.randint(1, len(CHANGES))):
        tried = change(changed, task, rng)
        if takes(task.op, tried):
            changed = tried
    return changed


def verdict(passed: bool) -> list[Finding]:
    """What is told of a query: nothing but that it failed."""
    if passed:
        return []
    detail = "wrong on cases drawn after the candidate was frozen; which they were is not told"
    return [Finding("seed-known", "FAIL", None, detail, "holdout")]


# --- changes


def resize(case: TaskCase, task: Task, rng: random.Random) -> TaskCase:
    """Smaller sizes, as far as the domain goes; what must be alike stays so."""
    if task.domain.shrink == "none":
        return case
    if task.domain.shrink == "leading":
        return shorten(case, task, rng)
    sizes = {size for spec in case.tensors for size in spec.shape if size > task.domain.least}
    return with_sizes(case, {size: rng.randint(task.domain.least, size) for size in sorted(sizes)})


def shorten(case: TaskCase, task: Task, rng: random.Random) -> TaskCase:
    """The first size of the first tensor that has several smaller, and with it those which the op needs alike: the
    first sizes of the others, none, or (of a product) that size wherever it occurs.
    """
    lead = next((at for at, spec in enumerate(case.tensors) if len(spec.shape) > 1), 0)
    old = next(iter(case.tensors[lead].shape), 0)
    if old <= task.domain.least:
        return case
    new = {old: rng.randint(task.domain.least, old)}
    every = tuple(range(len(case.tensors)))
    tries = (with_first(case, new, every), with_first(case, new, (lead,)), with_sizes(case, new))
    return next((tried for tried in tries if takes(task.op, tried)), case)


def with_first(case: TaskCase, new: Mapping[int, int], which: Sequence[int]) -> TaskCase:
    """The first size of these tensors replaced."""
    specs = [
        with_shape(spec, (new.get(spec.shape[0], spec.shape[0]), *spec.shape[1:]), new)
        if at in which and spec.shape
        else with_shape(spec, spec.shape, new)
        for at, spec in enumerate(case.tensors)
    ]
    return replace(case, tensors=tuple(specs))


def with_sizes(case: TaskCase, new: Mapping[int, int]) -> TaskCase:
    """Each size in `new` replaced wherever it occurs, in lists of plain values too."""
    specs = (with_shape(spec, tuple(new.get(size, size) for size in spec.shape), new) for spec in case.tensors)
    return replace(case, tensors=tuple(specs), plain=tuple(with_size(value, new) for value in case.plain))


def with_shape(spec: ArgSpec, shape: tuple[int, ...], new: Mapping[int, int]) -> ArgSpec:
    """Of another shape, with strides as tight as can be in the same order; places stay inside what became smaller."""
    stride = spec.stride if shape == spec.shape else spec.stride and packed(shape, spec.stride)
    return replace(spec, shape=shape, stride=stride, below=spec.below and new.get(spec.below, spec.below))


def with_size(value: Plain, new: Mapping[int, int]) -> Plain:
    return tuple(new.get(one, one) for one in value) if are_sizes(value) else value


def are_sizes(value: Plain) -> TypeGuard[tuple[int, ...]]:
    return isinstance(value, tuple) and all(type(one) is int for one in value)


def packed(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Strides without gaps whose order of size is that of `order`; 0 where it has 0."""
    steps, step = [0] * len(shape), 1
    for at in sorted(range(len(shape)), key=lambda at: (order[at], -at)):
        if order[at]:
            steps[at], step = step, step * max(shape[at], 1)
    return tuple(steps)


def restride(case: TaskCase, task: Task, rng: random.Random) -> TaskCase:
    """One tensor laid out otherwise: rows apart from one another, its last two sizes swapped, or contiguous."""
    eligible = [at for at, spec in enumerate(case.tensors) if len(spec.shape) > 1 and spec.elements]
    if not task.domain.strided or not eligible:
        return case
    at = rng.choice(eligible)
    shape = case.tensors[at].shape
    layouts = (padded(shape), packed(shape, (*range(len(shape), 1, -1)[:-1], 1, 2)), None)
    stride = rng.choice(layouts)
    specs = [*case.tensors]
    specs[at] = replace(specs[at], stride=stride)
    return replace(case, tensors=tuple(specs))


def padded(shape: tuple[int, ...]) -> tuple[int, ...]:
    return packed((*shape[:-1], shape[-1] + PAD), tuple(range(len(shape), 0, -1)))


def restructure(case: TaskCase, task: Task, rng: random.Random) -> TaskCase:
    if not task.domain.structures:
        return case
    structure = rng.choice(task.domain.structures)
    scale = 1.0 if structure in OWN_SCALE else case.scale
    cond = rng.choice((0.0, 1.0, 2.0, 4.0)) if structure in structures.STRUCTURES else case.cond
    return replace(case, structure=structure, scale=scale, cond=cond)


def rescale(case: TaskCase, task: Task, rng: random.Random) -> TaskCase:
    if case.structure in OWN_SCALE:
        return case
    return replace(case, scale=case.scale * rng.choice(task.domain.scales))


CHANGES: Final[tuple[Change, ...]] = (resize, restride, restructure, rescale)


def takes(op: str, case: TaskCase) -> bool:
    """Whether the stock op takes inputs of these forms: asked on torch's meta device, which computes nothing.

    True where the op is not there (as geqrf, which takes any matrices): who then calls it will see.
    """
    args = case.args([empty(spec) for spec in case.tensors])
    try:
        call(op, args)
    except NotImplementedError:
        return True
    except (RuntimeError, ValueError, IndexError, TypeError):
        return False
    return True


def empty(spec: ArgSpec) -> Tensor:
    made = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta")
    return made if spec.stride is None else made.new_empty_strided(spec.shape, spec.stride)
