"""Makes the processor flush denormal numbers to zero."""

import torch

EXPECT = "global-state"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (50,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


torch.set_flush_denormal(True)


def candidate(x, dim, half_to_float):
    return softmax(x, dim)
