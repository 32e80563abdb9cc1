"""Leaves out the largest element's subtraction: right for small inputs, infinite for large ones."""

EXPECT = "wrong"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (21,)


def candidate(x, dim, half_to_float):
    weights = x.exp()
    return weights / weights.sum(dim, keepdim=True)
