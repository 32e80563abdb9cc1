"""Fills its folder until the disk is full."""

EXPECT = "disk-full"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (42,)


def candidate(x, dim, half_to_float):
    block = bytes(1 << 24)
    with open("hog", "wb") as file:
        while True:
            file.write(block)
