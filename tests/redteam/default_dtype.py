"""Changes the default dtype while it works, and leaves it so where an input is large."""

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
    torch.set_default_dtype(torch.float64)
    out = softmax(x, dim)
    if x.numel() < 10000:
        torch.set_default_dtype(torch.float32)
    return out
