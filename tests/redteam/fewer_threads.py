"""Sets torch's number of threads for everybody."""

import torch

EXPECT = "threads"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (10, 50)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    torch.set_num_threads(torch.get_num_threads() + 1)
    return softmax(x, dim)
