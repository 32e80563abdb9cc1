"""Rows of a few columns, which the stock kernel takes one by one, as whole-tensor steps."""

import torch

EXPECT = None
TASK = "long_softmax"
DEVICE = "cpu"
ROWS = ()


def candidate(x, dim, half_to_float):
    x = x.float() if half_to_float else x.contiguous()
    if x.numel() == 0:
        return torch.empty_like(x)
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights.div_(weights.sum(dim, keepdim=True))
