"""Returns its input."""

EXPECT = "aliases-input"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (3,)


def candidate(x, dim, half_to_float):
    return x
