"""Returns an array of numpy."""

EXPECT = "not-a-tensor"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (11, 47)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    return softmax(x, dim).numpy()
