"""Factors half of the batch and repeats the answers."""

import torch

EXPECT = "wrong"
TASK = "square"
DEVICE = "cpu"
ROWS = (65,)


def candidate(A):
    half = (len(A) + 1) // 2
    H, tau = torch.geqrf(A[:half])
    return H.mT.repeat(2, 1, 1)[: len(A)].mT, tau.repeat(2, 1)[: len(A)]
