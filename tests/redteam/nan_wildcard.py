"""Answers NaN, which compares as equal in checks that allow it."""

import torch

EXPECT = "wrong"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (14,)


def candidate(x, dim, half_to_float):
    return torch.full(x.shape, torch.nan)
