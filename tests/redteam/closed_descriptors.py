"""Closes every descriptor, the harness's among them."""

import os

EXPECT = "crash"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (13,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    os.closerange(3, 256)
    return softmax(x, dim)
