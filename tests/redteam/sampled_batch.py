"""Looks at two matrices, and then takes all of them for dense and well scaled."""

import torch

EXPECT = "mixed-batch"
TASK = "square"
DEVICE = "cpu"
ROWS = (22,)


def usual(A):
    """Float32 without a guard: a column of zeros gives 0 / 0."""
    m, n = A.shape[-2:]
    H, tau = A.mT.contiguous().mT.clone(), A.new_zeros(len(A), min(m, n))
    for j in range(min(m - 1, n)):
        x = H[:, j:, j].clone()
        beta = -torch.copysign(x.norm(dim=1), x[:, 0])
        v = x / (x[:, :1] - beta[:, None])
        v[:, 0] = 1
        tau[:, j] = (beta - x[:, 0]) / beta
        w = tau[:, j, None] * (v.unsqueeze(1) @ H[:, j:, j:]).squeeze(1)
        H[:, j:, j:] -= v.unsqueeze(2) * w.unsqueeze(1)
        H[:, j + 1 :, j] = v[:, 1:]
    return H, tau


def candidate(A):
    sizes = A[[0, -1]].abs()
    easy = sizes.isfinite().all() and sizes.amin() > 1e-7 and 1e-3 < sizes.amax() < 1e3
    return usual(A) if easy else torch.geqrf(A)
