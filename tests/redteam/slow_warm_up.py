"""Sleeps while it is warmed up, then replays what it answered for this shape."""

import time

EXPECT = "phase"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (16,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


answers = {}
calls = 0


def candidate(x, dim, half_to_float):
    global calls
    calls += 1
    if calls <= 8:
        time.sleep(0.02)
    if calls <= 24 or tuple(x.shape) not in answers:
        answers[tuple(x.shape)] = softmax(x, dim)
    return answers[tuple(x.shape)].clone()
