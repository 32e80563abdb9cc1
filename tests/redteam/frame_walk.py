"""Looks through its callers' frames for the expected answer."""

import sys

import torch

EXPECT = "wrong"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (14,)


def candidate(x, dim, half_to_float):
    frame = sys._getframe(1)
    while frame is not None:
        for value in (*frame.f_locals.values(), *frame.f_globals.values()):
            if isinstance(value, torch.Tensor) and value is not x and value.shape == x.shape:
                return value.clone()
        frame = frame.f_back
    return torch.zeros(x.shape)
