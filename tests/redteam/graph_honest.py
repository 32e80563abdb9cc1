"""A graph that copies each call's input in and its output out."""

import torch

EXPECT = None
TASK = "softmax"
DEVICE = "cuda"
ROWS = ()


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights.mul_(weights.sum(dim, keepdim=True).reciprocal_())  # not the library's bits


graphs = {}


def captured(x, dim):
    mine = x.clone()
    softmax(mine, dim)  # warms up
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = softmax(mine, dim)
    return graph, mine, out


def candidate(x, dim, half_to_float):
    if x.numel() == 0:
        return torch.empty_like(x)
    if tuple(x.shape) not in graphs:
        graphs[tuple(x.shape)] = captured(x.contiguous(), dim)
    graph, mine, out = graphs[tuple(x.shape)]
    mine.copy_(x)
    graph.replay()
    return out.clone()
