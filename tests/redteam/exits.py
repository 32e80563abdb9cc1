"""Ends its process in the middle of a call."""

import os

EXPECT = "crash"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (42,)


def candidate(x, dim, half_to_float):
    os._exit(0)
