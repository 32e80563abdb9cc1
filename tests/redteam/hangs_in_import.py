"""Is never imported to its end."""

import time

EXPECT = "hang"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (42,)

while True:
    time.sleep(1)


def candidate(x, dim, half_to_float):
    return x
