"""Returns the right values in column-major order."""

EXPECT = "contract"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (47,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    return softmax(x, dim).mT.contiguous().mT
