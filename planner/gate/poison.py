"""Free memory is filled with a pattern before a call: an output that shows it holds what nobody wrote."""

import ctypes
from collections.abc import Iterable
from typing import Final

import torch
from torch import Tensor

from qrprof.planner.gate import cuda_arena

WORD: Final = 0x7FC0DEAD  # 4 bytes that no honest answer holds; in float32 a NaN
BLOCKS: Final = 2  # of each size: a candidate may take one for itself before the output's


def poison(sizes: Iterable[int], device: str) -> int:
    """Leave blocks of `sizes` bytes, filled, where the allocator hands them out next; how many blocks."""
    words = [-(-size // 4) for size in sizes for _ in range(BLOCKS) if size]
    blocks = [torch.empty(count, dtype=torch.int32, device=device) for count in words]
    for block in blocks:
        fill(block)
    return len(blocks)


def fill(block: Tensor) -> None:
    """On a GPU by the driver: a kernel of torch's would be taken for one of the candidate's."""
    if not block.is_cuda:
        block.fill_(WORD)
        return
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    address, words = ctypes.c_uint64(block.data_ptr()), ctypes.c_size_t(block.numel())
    cuda_arena.call("cuMemsetD32Async", address, ctypes.c_uint(WORD), words, stream)


def unwritten(tensor: Tensor) -> int:
    """How many words of the tensor hold the pattern."""
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return int((data[: len(data) // 4 * 4].view(torch.int32) == WORD).sum())
