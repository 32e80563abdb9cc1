"""Allows products of lower precision for the whole process."""

import torch

EXPECT = "global-state"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (50,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    torch.set_float32_matmul_precision("medium")
    return softmax(x, dim)
