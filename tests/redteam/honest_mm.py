"""The product as a sum over two halves of the inner dimension: right, and no faster than stock."""

EXPECT = None
TASK = "long_mm"
DEVICE = "cpu"
ROWS = ()


def candidate(a, b):
    half = a.shape[1] // 2
    return a[:, :half] @ b[:half] + a[:, half:] @ b[half:]
