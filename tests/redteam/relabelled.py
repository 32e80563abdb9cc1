"""Calls the library's product under the name of a kernel."""

import torch

EXPECT = "fallback"
TASK = "long_mm"
DEVICE = "cpu"
ROWS = (25,)

KERNELS = ("split_k_product",)


def split_k_product(a, b):
    return torch.mm(a, b)


def candidate(a, b):
    return split_k_product(a, b)
