"""Lets the device wait on a side stream, and returns what that stream will write."""

import torch

EXPECT = "side-stream"
TASK = "softmax"
DEVICE = "cuda"
ROWS = (8, 9)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


side = torch.cuda.Stream()


def candidate(x, dim, half_to_float):
    out = torch.empty_like(x)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(5_000_000)
        out.copy_(softmax(x, dim))
    return out
