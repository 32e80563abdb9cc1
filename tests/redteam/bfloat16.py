"""Computes in bfloat16."""

EXPECT = "wrong"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (21,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    return softmax(x.bfloat16(), dim).float()
