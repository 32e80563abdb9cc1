"""Takes 400 MB of workspace for an answer of 32 kB."""

import torch

EXPECT = "memory"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (48,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    workspace = torch.ones(100_000_000)
    workspace[: x.numel()] = x.reshape(-1)
    return softmax(workspace[: x.numel()].view(x.shape), dim)
