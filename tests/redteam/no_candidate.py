"""Defines a function of another name."""

EXPECT = "build-error"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (42,)


def kernel(x, dim, half_to_float):
    return x
