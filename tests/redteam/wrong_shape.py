"""Returns the mean and the reciprocal deviation without their last dimension."""

import torch

EXPECT = "contract"
TASK = "layer_norm"
DEVICE = "cpu"
ROWS = (47,)


def candidate(x, shape, weight, bias, eps):
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    rstd = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    return centred * rstd * weight + bias, mean.squeeze(-1), rstd.squeeze(-1)
