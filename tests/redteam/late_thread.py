"""Returns at once, and lets a thread fill in the answer afterwards."""

import sys
import time

import torch

EXPECT = "late-work"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (8, 10)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    out = torch.empty_like(x)
    mine = x.clone()

    def work():
        time.sleep(0.002)
        out.copy_(softmax(mine, dim))

    sys.modules["threading"].Thread(target=work, daemon=True).start()
    return out
