"""Writes a module beside itself and imports it."""

import importlib
import os
import sys

EXPECT = "import"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (49,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


with open("helper_of_mine.py", "w") as file:
    file.write("def scale(x):\n    return x\n")
sys.path.insert(0, os.getcwd())
scale = importlib.import_module("helper_of_mine").scale


def candidate(x, dim, half_to_float):
    return scale(softmax(x, dim))
