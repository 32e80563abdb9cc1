"""Capturing work on a GPU as a CUDA graph, and leaving a capture that fails."""

from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeVar

import torch

T = TypeVar("T")


class NoGraph(Exception):
    """The work cannot be captured; the message says why."""


def captured(
    work: Callable[[], T], device: torch.device, mode: Literal["global", "thread_local"] = "global"
) -> tuple[torch.cuda.CUDAGraph, T]:
    """A graph of what `work` launches, and its result, in memory that the graph holds.

    Waits for the device first. `mode` says whether other threads may allocate meanwhile. Raises NoGraph.
    """
    torch.cuda.synchronize(device)
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    here = torch.cuda.current_stream(device)
    own: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    try:
        # A capture that fails leaves its own stream the current one; the second `with` takes that back.
        with (
            torch.cuda.device(device),
            torch.cuda.stream(here),
            torch.cuda.graph(graph, pool=pool, stream=own, capture_error_mode=mode),
        ):
            result = work()
    except RuntimeError as error:
        torch.cuda.synchronize(device)
        leave(pool, device)
        raise NoGraph(str(error).partition("\n")[0]) from None
    return graph, result


def leave(pool: tuple[int, int], device: torch.device) -> None:
    """Before torch 2.12 the allocator stays in a capture that fails at its end: no later one works (PR 180395)."""
    index = torch.cuda.current_device() if device.index is None else device.index
    with suppress(RuntimeError):  # it has left
        torch._C._cuda_endAllocateToPool(index, pool)
