"""Writes the first half of its rows and leaves the rest as the allocator gave it."""

import torch

EXPECT = "uninitialised"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (1, 65)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    out = torch.empty_like(x)
    half = len(x) // 2
    out[:half] = softmax(x[:half], dim)
    return out
