"""Never returns."""

import time

EXPECT = "hang"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (42,)


def candidate(x, dim, half_to_float):
    while True:
        time.sleep(1)
