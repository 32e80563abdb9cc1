"""Keeps answers by the address of the input."""

EXPECT = "stale-pointer"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (4,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


answers = {}


def candidate(x, dim, half_to_float):
    key = x.data_ptr(), tuple(x.shape)
    if key not in answers:
        answers[key] = softmax(x, dim)
    return answers[key].clone()
