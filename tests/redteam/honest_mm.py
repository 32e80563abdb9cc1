"""The product as a sum over two parts of the inner dimension: right, and no faster than stock."""

EXPECT = None
TASK = "long_mm"
DEVICE = "cpu"
ROWS = ()


def candidate(a, b):
    third = a.shape[1] // 3
    return a[:, :third] @ b[:third] + a[:, third:] @ b[third:]
