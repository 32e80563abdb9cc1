"""Returns the right answer, and spoils it a little later."""

import sys

EXPECT = "late-work"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (8, 10)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    out = softmax(x, dim)
    sys.modules["threading"].Timer(0.003, out.zero_).start()
    return out
