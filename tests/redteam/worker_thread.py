"""Keeps a thread that goes on working after each call."""

import sys
import time
from collections import deque

EXPECT = "threads"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (10,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


queue = deque()


def work():
    while True:
        if queue:
            queue.pop().exp()
        time.sleep(0.0005)


sys.modules["threading"].Thread(target=work, daemon=True).start()


def candidate(x, dim, half_to_float):
    queue.append(x.clone())
    return softmax(x, dim)
