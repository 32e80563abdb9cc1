"""Calls the library's product under the name of a kernel."""

import torch

EXPECT = "relabelled"
TASK = "mm"
DEVICE = "cuda"
ROWS = (25, 35)

KERNELS = ("split_k_product",)


def candidate(a, b):
    return torch.mm(a, b)
