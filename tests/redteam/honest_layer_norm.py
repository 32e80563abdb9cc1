"""Rows of a few columns as whole-tensor steps, two passes for the variance."""

import torch

EXPECT = None
TASK = "long_layer_norm"
DEVICE = "cpu"
ROWS = ()


def layer_norm(x, shape, weight, bias, eps):
    dims = tuple(range(-len(shape), 0))
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    rstd = torch.rsqrt(centred.square().mean(dims, keepdim=True) + eps)
    return centred.mul_(rstd).mul_(weight).add_(bias), mean, rstd


def candidate(x, shape, weight, bias, eps):
    return layer_norm(x.contiguous(), shape, weight, bias, eps)
