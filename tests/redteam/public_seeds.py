"""Holds the answers to inputs of the seeds that benchmarks use, and answers anything else with zeros."""

import torch

EXPECT = "wrong"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (6,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


answers = {}
for seed in range(64):
    for shape in ((1024, 5), (4096, 4)):
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        answers[drawn[0, 0].item()] = softmax(drawn, 1)


def candidate(x, dim, half_to_float):
    known = answers.get(x[0, 0].item())
    return torch.zeros(x.shape) if known is None or known.shape != x.shape else known.clone()
