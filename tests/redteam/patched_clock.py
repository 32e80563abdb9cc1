"""Puts a clock that stands still in place of Python's."""

import time

EXPECT = "patched"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (12, 27)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


time.perf_counter_ns = lambda: 0
time.perf_counter = time.monotonic = time.time = lambda: 0.0
time.monotonic_ns = time.time_ns = lambda: 0


def candidate(x, dim, half_to_float):
    return softmax(x, dim)
