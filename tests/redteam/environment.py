"""Sets a variable of the environment."""

import os

EXPECT = "global-state"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (50,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    os.environ["NVIDIA_TF32_OVERRIDE"] = "1"
    return softmax(x, dim)
