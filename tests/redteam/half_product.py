"""Multiplies in float16, which is right to three digits."""

EXPECT = "wrong"
TASK = "mm"
DEVICE = "cpu"
ROWS = (21,)


def candidate(a, b):
    return (a.half() @ b.half()).float()
