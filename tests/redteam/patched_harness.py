"""Makes the clock that the harness keeps in its module stand still."""

import sys

EXPECT = "clock-mismatch"
TASK = "long_softmax"
DEVICE = "cpu"
ROWS = (12, 31, 40)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


for name, module in list(sys.modules.items()):
    if name.startswith("qrprof") and hasattr(module, "clock"):
        module.clock = int


def candidate(x, dim, half_to_float):
    return softmax(x, dim)
