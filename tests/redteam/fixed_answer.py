"""Answers the same numbers to any input of a shape."""

import torch

EXPECT = "insensitive"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (20,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    return softmax(torch.linspace(-1, 1, x.numel()).view(x.shape), dim)
