"""Starts processes without end."""

import os
import time

EXPECT = "task-limit"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (42,)


def candidate(x, dim, half_to_float):
    while True:
        if os.fork() == 0:
            time.sleep(600)
