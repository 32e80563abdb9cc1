"""Returns a Parameter, which is a Tensor to isinstance."""

import torch

EXPECT = "not-a-tensor"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (11,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    return torch.nn.Parameter(softmax(x, dim), requires_grad=False)
