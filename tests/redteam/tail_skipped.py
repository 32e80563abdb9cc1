"""Takes columns that are small beside the largest for zero."""

import torch

EXPECT = "wrong"
TASK = "square"
DEVICE = "cpu"
ROWS = (21, 22)


def candidate(A):
    sizes = A.norm(dim=-2, keepdim=True)
    return torch.geqrf(torch.where(sizes < 1e-5 * sizes.amax(-1, keepdim=True), 0, A))
