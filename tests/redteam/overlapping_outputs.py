"""Returns the mean and the reciprocal deviation in overlapping memory."""

import torch

EXPECT = "aliases-input"
TASK = "layer_norm"
DEVICE = "cpu"
ROWS = (3,)


def candidate(x, shape, weight, bias, eps):
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    rstd = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    out = centred * rstd * weight + bias
    both = torch.empty(len(x) + 1, 1)
    both[: len(x)] = mean
    both[1:] = rstd
    return out, both[: len(x)], both[1:]
