"""Remembers the last input object, and answers as before when it comes again."""

EXPECT = "stale-pointer"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (4,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


last = None
answer = None


def candidate(x, dim, half_to_float):
    global last, answer
    if x is not last:
        last, answer = x, softmax(x, dim)
    return answer.clone()
