"""Changes one element of its input, once in five calls."""

EXPECT = "mutated-input"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (2, 7)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


calls = 0


def candidate(x, dim, half_to_float):
    global calls
    calls += 1
    out = softmax(x, dim)
    if calls % 5 == 0:
        x[-1, -1] += 1
    return out
