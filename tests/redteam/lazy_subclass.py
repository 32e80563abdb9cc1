"""Returns a subclass of Tensor that computes only once somebody looks."""

import torch

EXPECT = "not-a-tensor"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (11,)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        plain = [arg.work() if isinstance(arg, Lazy) else arg for arg in args]
        return function(*plain, **(kwargs or {}))


def candidate(x, dim, half_to_float):
    out = torch.empty_like(x).as_subclass(Lazy)
    out.work = lambda: softmax(x, dim)
    return out
