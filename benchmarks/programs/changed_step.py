"""A training step before and after one change.

    python benchmarks/programs/changed_step.py adamw|item|graph|loader [--steps N]      trains before the change
    python benchmarks/programs/changed_step.py adamw|item|graph|loader --compare 6      times both in turn, 6 times each

adamw: one kernel for each operation and parameter (foreach=False) -> the fused AdamW.
item:  the norm of every gradient is read with .item() -> the norms stay on the device.
graph: an MLP's step launched op by op -> the same step captured in a CUDA graph.
loader: a DataLoader that unpacks every sample while the step waits -> the same batches, held ready. Also on a CPU.
"""

import argparse
import itertools
import json
import lzma
import time
from collections.abc import Callable
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

WARMUP = 20
SAMPLES, BATCH, WIDTH, SHARD = 32, 16, 2048, 1 << 16


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


class Packed(Dataset[Tensor]):
    """Samples, (WIDTH,), each the beginning of a shard that is compressed at rest."""

    def __init__(self) -> None:
        numbers = torch.randint(0, 8, (SAMPLES, SHARD), dtype=torch.uint8)
        self.packed = [lzma.compress(row.numpy().tobytes()) for row in numbers]

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Tensor:
        shard = bytearray(lzma.decompress(self.packed[index]))
        return torch.frombuffer(shard, dtype=torch.uint8)[:WIDTH].float() / 8


def loader(after: bool) -> Callable[[], None]:
    device = torch.get_default_device()
    model = nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, WIDTH))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    with torch.device("cpu"):
        loading: DataLoader[Tensor] = DataLoader(Packed(), batch_size=BATCH)
        batches = itertools.cycle(list(loading)) if after else itertools.chain.from_iterable(itertools.repeat(loading))
    return lambda: plain_step(model, optimizer, next(batches).to(device))


STEPS: Final[dict[str, Callable[[bool], Callable[[], None]]]] = {
    "adamw": adamw, "item": item, "graph": graph, "loader": loader
}  # fmt: skip


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(step: Callable[[], None], steps: int) -> float:
    """Mean time of a step, ms."""
    wait()
    start = time.perf_counter_ns()
    for _ in range(steps):
        step()
    wait()
    return (time.perf_counter_ns() - start) / steps / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=STEPS)
    parser.add_argument("--steps", type=int, default=150, help="of training, or of each of the times compared")
    parser.add_argument("--compare", type=int, metavar="PAIRS")
    options = parser.parse_args()
    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    before = STEPS[options.case](False)
    timed(before, WARMUP)
    if options.compare is None:
        print(f"{timed(before, options.steps):.3f} ms a step")
        return
    after = STEPS[options.case](True)
    timed(after, WARMUP)
    pairs = [(timed(before, options.steps), timed(after, options.steps)) for _ in range(options.compare)]
    print(json.dumps({"before_ms": [pair[0] for pair in pairs], "after_ms": [pair[1] for pair in pairs]}))


if __name__ == "__main__":
    main()
