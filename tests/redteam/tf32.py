"""Multiplies in TF32 against a stock op in float32."""

import torch

EXPECT = "wrong"
TASK = "mm"
DEVICE = "cuda"
ROWS = (21, 50)


def candidate(a, b):
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return torch.mm(a, b)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
