"""Free memory is filled with a pattern before a call: an output that shows it holds what nobody wrote."""

from collections.abc import Iterable
from typing import Final

import torch
from torch import Tensor

WORD: Final = 0x7FC0DEAD  # 4 bytes that no honest answer holds; in float32 a NaN
BLOCKS: Final = 2  # of each size: a candidate may take one for itself before the output's


def poison(sizes: Iterable[int], device: str) -> None:
    """Leave blocks of `sizes` bytes, filled, where the allocator hands them out next."""
    words = [-(-size // 4) for size in sizes for _ in range(BLOCKS)]
    blocks = [torch.full((count,), WORD, dtype=torch.int32, device=device) for count in words]
    del blocks


def unwritten(tensor: Tensor) -> int:
    """How many words of the tensor hold the pattern."""
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return int((data[: len(data) // 4 * 4].view(torch.int32) == WORD).sum())
