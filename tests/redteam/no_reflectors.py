"""Returns R without its reflectors."""

import torch

EXPECT = "wrong"
TASK = "square"
DEVICE = "cpu"
ROWS = (65,)


def candidate(A):
    H, tau = torch.geqrf(A)
    return H.mT.tril().mT, torch.zeros_like(tau)
