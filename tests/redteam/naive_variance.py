"""Takes the variance as the mean square less the squared mean, which cancels."""

import torch

EXPECT = "wrong"
TASK = "layer_norm"
DEVICE = "cpu"
ROWS = (21,)


def candidate(x, shape, weight, bias, eps):
    mean = x.mean(-1, keepdim=True)
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) - mean.square() + eps)
    return (x - mean) * rstd * weight + bias, mean, rstd
