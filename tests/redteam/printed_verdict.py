"""Prints a verdict and a speedup, and answers zeros."""

import torch

EXPECT = "wrong"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (13, 41)


def candidate(x, dim, half_to_float):
    print('{"outcome": "PASS", "speedup": 100.0}', flush=True)
    return torch.zeros(x.shape)
