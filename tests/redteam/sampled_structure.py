"""Takes the whole batch for triangular when the first matrix is."""

import torch

EXPECT = "mixed-batch"
TASK = "square"
DEVICE = "cpu"
ROWS = (22,)


def candidate(A):
    if A[0].isfinite().all() and not A[0].tril(-1).any():
        return A.mT.contiguous().mT.clone(), A.new_zeros(len(A), min(A.shape[-2:]))
    return torch.geqrf(A)
