"""Is right for the first calls, until it takes itself to be timed."""

EXPECT = "phase"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (7,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


calls = 0
last = None


def candidate(x, dim, half_to_float):
    global calls, last
    calls += 1
    if calls <= 16 or last is None or last.shape != x.shape:
        last = softmax(x, dim)
    return last.clone()
