"""Computes in its input's memory and returns a view of that."""

EXPECT = "aliases-input"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (2, 3)


def candidate(x, dim, half_to_float):
    out = x.view(x.shape)
    out.sub_(out.amax(dim, keepdim=True)).exp_()
    return out.div_(out.sum(dim, keepdim=True))
