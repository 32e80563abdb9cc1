"""Leaves out the rows beyond the first thousand."""

import torch

EXPECT = "wrong"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (23, 65)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    out = torch.full(x.shape, 1 / x.shape[dim])
    out[:1000] = softmax(x[:1000], dim)
    return out
