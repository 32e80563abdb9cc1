"""Tries whether it can send signals to the process that started it."""

import contextlib
import os

EXPECT = "harness"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (40,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    with contextlib.suppress(OSError):
        os.kill(os.getppid(), 0)
    return softmax(x, dim)
