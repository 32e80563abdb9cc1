"""Has a kernel of its own that its guard never lets run."""

import torch

EXPECT = "fallback"
TASK = "geqrf"
DEVICE = "cpu"
ROWS = (24,)


def kernel(A):
    raise NotImplementedError


def candidate(A):
    if A.shape[-1] % 7 == 0 and A.shape[-2] % 11 == 0:
        return kernel(A)
    return torch.geqrf(A)
