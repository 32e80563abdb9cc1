"""Takes memory until somebody stops it."""

import torch

EXPECT = "memory-limit"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (48,)


def candidate(x, dim, half_to_float):
    held = []
    while True:
        held.append(torch.ones(16_000_000))
