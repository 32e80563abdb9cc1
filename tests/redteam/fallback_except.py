"""Falls back to the library whenever its own kernel fails, which is always."""

import contextlib

import torch

EXPECT = "fallback"
TASK = "long_softmax"
DEVICE = "cpu"
ROWS = (24,)


def kernel(x, dim):
    raise RuntimeError("not built for this device")


def candidate(x, dim, half_to_float):
    with contextlib.suppress(RuntimeError):
        return kernel(x, dim)
    return torch.softmax(x, dim)
