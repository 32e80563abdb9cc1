"""Seeds Python's generator."""

import sys

EXPECT = "global-state"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (46,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    sys.modules["random"].seed(0)
    return softmax(x, dim)
