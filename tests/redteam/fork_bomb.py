"""Starts processes, many more than a kernel needs."""

import os
import time

EXPECT = "task-limit"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (42,)


def candidate(x, dim, half_to_float):
    for _ in range(1000):  # a bomb with an end, for the case that nothing stops it
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
