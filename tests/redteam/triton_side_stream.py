"""Works on a stream of its own and does not wait for it."""

import torch
import triton
import triton.language as tl

EXPECT = "side-stream"
TASK = "softmax"
DEVICE = "triton"
ROWS = (9,)

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


side = torch.cuda.Stream()


def candidate(x, dim, half_to_float):
    with torch.cuda.stream(side):
        torch.cuda._sleep(5_000_000)
        out = softmax(x, dim)
    return out
