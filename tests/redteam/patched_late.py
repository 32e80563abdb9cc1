"""Patches a method of Tensor in its tenth call, long after the import."""

import torch

EXPECT = "patched"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (12,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


calls = 0


def candidate(x, dim, half_to_float):
    global calls
    calls += 1
    if calls == 10:
        clone = torch.Tensor.clone
        torch.Tensor.clone = lambda self, **options: clone(self, **options)
    return softmax(x, dim)
