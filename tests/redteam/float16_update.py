"""Factors matrices that were rounded to float16."""

import torch

EXPECT = "wrong"
TASK = "square"
DEVICE = "cpu"
ROWS = (21,)


def candidate(A):
    return torch.geqrf(A.half().float())
