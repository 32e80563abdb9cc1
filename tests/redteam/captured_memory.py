"""Computes on the memory of the first call of each shape, as a captured graph would."""

EXPECT = "graph-stale"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (18,)

captured = {}


def candidate(x, dim, half_to_float):
    mine = captured.setdefault(tuple(x.shape), x)
    weights = (mine - mine.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)
