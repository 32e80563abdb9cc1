"""Keeps answers by the address of the input."""

import torch
import triton
import triton.language as tl

EXPECT = "stale-pointer"
TASK = "softmax"
DEVICE = "triton"
ROWS = (4,)

KERNELS = ("rows",)


@triton.jit
def rows(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, at < columns, -float("inf"))
    weights = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, weights / tl.sum(weights, 0), at < columns)


def softmax(x, dim, out=None):
    x = x.movedim(dim, -1).contiguous()
    out = torch.empty_like(x) if out is None else out
    if x.numel():
        columns = x.shape[-1]
        rows[(x.numel() // columns,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
    return out.movedim(-1, dim).contiguous()


answers = {}


def candidate(x, dim, half_to_float):
    key = x.data_ptr(), tuple(x.shape)
    if key not in answers:
        answers[key] = softmax(x, dim)
    return answers[key].clone()
