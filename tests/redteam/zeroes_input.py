"""Answers zeros, and zeroes its inputs so that a reference that runs later answers zeros too."""

EXPECT = "mutated-input"
TASK = "mm"
DEVICE = "cpu"
ROWS = (2,)


def candidate(a, b):
    a.zero_()
    return a @ b
