"""Answers zeros, which a tolerance for small values would let pass."""

import torch

EXPECT = "wrong"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (19,)


def candidate(x, dim, half_to_float):
    return torch.zeros(x.shape)
