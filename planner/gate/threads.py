"""How many threads the gate's own torch takes beside the processes that it judges."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from qrprof.planner.gate.records import Task

LARGE: Final = 1 << 22  # numbers of a case, from which on a check in float64 is worth more threads


@contextmanager
def one_thread() -> Iterator[None]:
    """One, and as many as before afterwards.

    Others would spin for milliseconds beside a process that is timed; and where more threads than cores are at work,
    those that check small tensors together wait for one another: 5 to 20 times as long as one alone takes.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def few_threads(task: Task) -> Iterator[None]:
    """One, unless the task's cases are large."""
    if max(sum(spec.elements for spec in case.tensors) for case in task.development) >= LARGE:
        yield
    else:
        with one_thread():
            yield
