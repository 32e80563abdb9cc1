"""Is right, in float64, and for that slower than the stock op."""

EXPECT = "slower"
TASK = "long_softmax"
DEVICE = "cpu"
ROWS = (33, 43)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    for _ in range(8):
        out = softmax(x.double(), dim).float()
    return out
