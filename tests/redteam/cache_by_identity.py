"""Keeps answers by the input's identity and version, which a write from outside does not raise."""

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
    key = id(x), x._version, tuple(x.shape)
    if key not in answers:
        answers[key] = x, softmax(x, dim)  # held, so that the identity stays taken
    return answers[key][1].clone()
