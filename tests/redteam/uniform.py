"""Answers the mean of all answers, whatever the input."""

import torch

EXPECT = "null-answer"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (19, 20)


def candidate(x, dim, half_to_float):
    return torch.full(x.shape, 1 / x.shape[dim])
