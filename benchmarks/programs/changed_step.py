"""A training step on a GPU before and after one change; prints the mean time of a step.

    python benchmarks/programs/changed_step.py adamw|item|graph [--after] [--steps N]

adamw: one kernel for each operation and parameter (foreach=False) -> the fused AdamW.
item:  the norm of every gradient is read with .item() -> the norms stay on the device.
graph: an MLP's step launched op by op -> the same step captured in a CUDA graph.
"""

import argparse
import json
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

WARMUP = 20


def transformer(dim: int = 256, layers: int = 6) -> nn.Module:
    layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda()


def plain_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    optimizer.zero_grad()
    F.mse_loss(model(x), x).backward()
    optimizer.step()


def adamw(after: bool) -> Callable[[], None]:
    model, x = transformer(), torch.randn(8, 128, 256, device="cuda")
    kind = {"fused": True} if after else {"foreach": False}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **kind)
    return lambda: plain_step(model, optimizer, x)


def item(after: bool) -> Callable[[], None]:
    model, x = transformer(), torch.randn(8, 128, 256, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        F.mse_loss(model(x), x).backward()
        norms = [parameter.grad.norm() for parameter in model.parameters() if parameter.grad is not None]
        if not after:
            sum(norm.item() for norm in norms)
        optimizer.step()

    return step


def graph(after: bool) -> Callable[[], None]:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(8))).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=True)
    x = torch.randn(64, 512, device="cuda")
    if not after:
        return lambda: plain_step(model, optimizer, x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            plain_step(model, optimizer, x)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        plain_step(model, optimizer, x)
    return captured.replay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=("adamw", "item", "graph"))
    parser.add_argument("--after", action="store_true", help="with the change")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    torch.manual_seed(0)
    step = {"adamw": adamw, "item": item, "graph": graph}[options.case](options.after)
    for _ in range(WARMUP):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for _ in range(options.steps):
        step()
    torch.cuda.synchronize()
    print(json.dumps({"step_ms": (time.perf_counter_ns() - start) / options.steps / 1e6}))


if __name__ == "__main__":
    main()
