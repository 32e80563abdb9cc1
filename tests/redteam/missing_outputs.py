"""Returns the first of three outputs."""

import torch

EXPECT = "contract"
TASK = "layer_norm"
DEVICE = "cpu"
ROWS = (47,)


def candidate(x, shape, weight, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps) * weight + bias
