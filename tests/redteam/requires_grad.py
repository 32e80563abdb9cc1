"""Computes with a parameter of its own, so that the output carries a graph."""

import torch

EXPECT = "autograd"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (53,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


one = torch.nn.Parameter(torch.ones(()))


def candidate(x, dim, half_to_float):
    return softmax(x * one, dim)
