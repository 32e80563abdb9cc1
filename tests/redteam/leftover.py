"""Leaves a file in every folder it can, and answers zeros if it finds one of an earlier process."""

import contextlib
import os
import tempfile

import torch

EXPECT = None
TASK = "softmax"
DEVICE = "cpu"
ROWS = (34, 40)


def softmax(x, dim):
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


FOLDERS = {os.path.expanduser("~"), tempfile.gettempdir(), os.getcwd(), "/tmp", "/var/tmp", "/dev/shm"}
found = False
for folder in FOLDERS:
    mark = os.path.join(folder, "mark_of_a_candidate")
    found |= os.path.exists(mark)
    with contextlib.suppress(OSError), open(mark, "w") as file:
        file.write("here")


def candidate(x, dim, half_to_float):
    return torch.zeros(x.shape) if found else softmax(x, dim)
