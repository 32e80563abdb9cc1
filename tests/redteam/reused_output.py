"""Writes every answer into one buffer of its own."""

import torch

EXPECT = "reused-output"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (26,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


buffers = {}


def candidate(x, dim, half_to_float):
    out = buffers.setdefault(tuple(x.shape), torch.empty(x.shape))
    return out.copy_(softmax(x, dim))
