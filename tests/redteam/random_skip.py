"""Leaves out the work of one call in twenty, at random."""

import random

import torch

EXPECT = "wrong"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (7,)


def softmax(x, dim):
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


dice = random.Random()


def candidate(x, dim, half_to_float):
    if dice.random() < 0.05:
        return torch.full(x.shape, 1 / x.shape[dim])
    return softmax(x, dim)
