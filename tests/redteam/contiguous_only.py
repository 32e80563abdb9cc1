"""Reads its input as if it were contiguous."""

import torch

EXPECT = "wrong"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (47,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    flat = torch.as_strided(x, (x.numel(),), (1,), x.storage_offset())
    return softmax(flat.view(x.shape), dim)
