"""Reads an address that is not there."""

import numpy as np
import torch

EXPECT = "crash"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (42,)


def candidate(x, dim, half_to_float):
    return torch.from_numpy(np.lib.stride_tricks.as_strided(x.numpy(), x.shape, (1 << 40, 1 << 40))) + 0
