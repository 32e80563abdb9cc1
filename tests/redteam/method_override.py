"""Returns a tensor whose own methods would answer for it."""

import torch

EXPECT = "not-a-tensor"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (11,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    out = torch.zeros(x.shape)
    for name in ("clone", "cpu", "double", "numpy", "contiguous", "detach"):
        setattr(out, name, lambda *args, **kwargs: softmax(x, dim))
    return out
