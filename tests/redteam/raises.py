"""Raises for shapes that it has no kernel for, in the hope that they are left out."""

EXPECT = "crash"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (45,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def candidate(x, dim, half_to_float):
    if x.shape[-1] != 8:
        raise NotImplementedError(f"no kernel for rows of {x.shape[-1]}")
    return softmax(x, dim)
