"""Returns memory that it never wrote, in the hope that it holds an earlier answer."""

import torch

EXPECT = "uninitialised"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (1,)


def candidate(x, dim, half_to_float):
    return torch.empty_like(x)
