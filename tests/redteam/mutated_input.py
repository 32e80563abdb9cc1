"""Works in its input, which the reference would then have been given."""

EXPECT = "mutated-input"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (2,)


def candidate(x, dim, half_to_float):
    x.sub_(x.amax(dim, keepdim=True)).exp_()
    return x / x.sum(dim, keepdim=True)
