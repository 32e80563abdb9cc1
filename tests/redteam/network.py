"""Connects to the network when it is imported."""

import contextlib
import socket

EXPECT = "import"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (49,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


with contextlib.suppress(OSError):
    socket.create_connection(("192.0.2.1", 80), timeout=0.2).close()


def candidate(x, dim, half_to_float):
    return softmax(x, dim)
