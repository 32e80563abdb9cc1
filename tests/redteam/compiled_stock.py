"""Wraps the stock op and compiles nothing."""

import torch

EXPECT = "fallback"
TASK = "long_layer_norm"
DEVICE = "cpu"
ROWS = (24, 62)


def candidate(x, shape, weight, bias, eps):
    return torch.ops.aten.native_layer_norm(x, shape, weight, bias, eps)
