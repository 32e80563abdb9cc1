"""Leaves a file in its folders, and answers zeros if it finds one of an earlier process."""

import os

import torch

EXPECT = None
TASK = "softmax"
DEVICE = "cpu"
ROWS = (34,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


found = False
for folder in {os.getcwd(), *(os.environ.get(name, ".") for name in ("HOME", "TMPDIR", "TRITON_CACHE_DIR"))}:
    os.makedirs(folder, exist_ok=True)
    mark = os.path.join(folder, "mark_of_a_candidate")
    found |= os.path.exists(mark)
    with open(mark, "w") as file:
        file.write("here")


def candidate(x, dim, half_to_float):
    return torch.zeros(x.shape) if found else softmax(x, dim)
