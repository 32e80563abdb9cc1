"""Captures a graph for each shape and replays it on the memory of the first call."""

import torch

EXPECT = "graph-stale"
TASK = "softmax"
DEVICE = "cuda"
ROWS = (18,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


graphs = {}


def captured(x, dim):
    softmax(x, dim)  # warms up
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = softmax(x, dim)
    return graph, x, out


def candidate(x, dim, half_to_float):
    if tuple(x.shape) not in graphs:
        graphs[tuple(x.shape)] = captured(x, dim)
    graph, _, out = graphs[tuple(x.shape)]
    graph.replay()
    return out.clone()
