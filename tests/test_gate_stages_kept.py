"""Answers that are kept instead of computed, and what they are called."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gate_scripted import (
    Candidate,
    Script,
    found,
    gate,
    softmax,
)
from torch import Tensor


def by_object() -> Candidate:
    answers: dict[int, tuple[Tensor, Tensor]] = {}

    def candidate(x: Tensor, dim: int, half: bool) -> Tensor:
        _, answer = answers.setdefault(id(x), (x, softmax(x, dim)))  # held, so that no other gets its id
        return answer.clone()

    return candidate


def by_sum() -> Candidate:
    answers: dict[Any, Tensor] = {}

    def candidate(x: Tensor, dim: int, half: bool) -> Tensor:
        key = tuple(x.shape), round(float(x.double().sum()), 3)
        return answers.setdefault(key, softmax(x, dim)).clone()

    return candidate


def by_sample() -> Candidate:
    answers: dict[Any, Tensor] = {}

    def candidate(x: Tensor, dim: int, half: bool) -> Tensor:
        key = tuple(x.shape), tuple(x.reshape(-1)[::20].tolist())
        return answers.setdefault(key, softmax(x, dim)).clone()

    return candidate


def of_captured_memory() -> Candidate:
    """As a graph replayed on the memory that it was captured on."""
    graphs: dict[Any, Tensor] = {}

    def candidate(x: Tensor, dim: int, half: bool) -> Tensor:
        return softmax(graphs.setdefault(tuple(x.shape), x), dim)

    return candidate


def into_one_buffer() -> Candidate:
    buffers: dict[Any, Tensor] = {}

    def candidate(x: Tensor, dim: int, half: bool) -> Tensor:
        out = buffers.setdefault(tuple(x.shape), torch.empty(x.shape))
        return out.copy_(softmax(x, dim))

    return candidate


def after(count: int) -> Callable[[], Candidate]:
    """Right for so many calls, then the last answer again."""

    def make() -> Candidate:
        calls, last = 0, torch.empty(0)

        def candidate(x: Tensor, dim: int, half: bool) -> Tensor:
            nonlocal calls, last
            calls += 1
            if calls <= count or last.shape != x.shape:
                last = softmax(x, dim)
            return last.clone()

        return candidate

    return make


@pytest.mark.parametrize(
    ("make", "detector"),
    [
        (by_object, "stale-pointer"),
        (by_sum, "stale-content"),
        (by_sample, "stale-content"),
        (of_captured_memory, "graph-stale"),
        (into_one_buffer, "reused-output"),
        (after(7), "phase"),
        (after(40), "phase"),
        (after(250), "phase"),
    ],
)
def test_kept_answers(tmp_path: Path, make: Callable[[], Candidate], detector: str) -> None:
    verdict = gate(tmp_path, Script(make, cost_ns=2e6))
    assert verdict.outcome == "FAIL"
    assert found(verdict) in ({"wrong", detector}, {detector})
