"""Returns a tensor without memory."""

import torch

EXPECT = "not-a-tensor"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (47,)


def candidate(x, dim, half_to_float):
    return torch.empty_like(x, device="meta")
