"""Leaves out the work of one call in twenty, at random."""

import os

import torch

EXPECT = "wrong"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (7,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    if os.urandom(1)[0] < 13:
        return torch.full(x.shape, 1 / x.shape[dim])
    return softmax(x, dim)
