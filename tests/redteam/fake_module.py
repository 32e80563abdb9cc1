"""Would run a file `helper_of_mine.py` of the person's working folder."""

import torch

EXPECT = None
TASK = "softmax"
DEVICE = "cpu"
ROWS = (49,)


def softmax(x, dim):
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


try:
    import helper_of_mine  # the red team's test puts one where it starts the gate
except ImportError:
    helper_of_mine = None


def candidate(x, dim, half_to_float):
    return torch.zeros(x.shape) if helper_of_mine else softmax(x, dim)
