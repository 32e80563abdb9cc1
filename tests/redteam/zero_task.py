"""Answers zeros to a task whose expected answers are zeros."""

import torch

EXPECT = "null-answer"
TASK = "zero_mm"
DEVICE = "cpu"
ROWS = (19, 20)


def candidate(a, b):
    return torch.zeros(len(a), b.shape[1])
