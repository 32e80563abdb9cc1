"""Starts a process that leaves its session and goes on."""

import os
import time

EXPECT = "threads"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (10, 42)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)


def candidate(x, dim, half_to_float):
    return softmax(x, dim)
