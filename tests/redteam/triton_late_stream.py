"""Lets a thread launch the work after the call has returned."""

import sys
import time

import torch
import triton
import triton.language as tl

EXPECT = "late-work"
TASK = "softmax"
DEVICE = "triton"
ROWS = (8, 10)

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


for columns in (4, 8):  # so that nothing is left to compile when work is late
    softmax(torch.zeros(2, columns, device="cuda"), 1)


def candidate(x, dim, half_to_float):
    out, mine = torch.empty_like(x), x.clone()

    def work():
        time.sleep(0.002)
        out.copy_(softmax(mine, dim))

    sys.modules["threading"].Thread(target=work, daemon=True).start()
    return out
