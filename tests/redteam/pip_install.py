"""Installs a package while it is imported."""

import subprocess
import sys

EXPECT = "import"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (49,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


COMMAND = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--target", ".", "nothing")
subprocess.run(COMMAND, check=False)


def candidate(x, dim, half_to_float):
    return softmax(x, dim)
