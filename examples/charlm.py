"""A small character transformer, its data and its training loop: what the examples share.

The text is Python's own reference manual, which comes with every Python: nothing to download.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from pydoc_data.topics import topics
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 128  # the tokens are ASCII codes
WARMUP = 3  # steps left out of the times


class Block(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class CharLM(nn.Module):
    """Predicts the next character: tokens (batch, context) -> logits (batch, context, VOCABULARY)."""

    def __init__(self, *, dim: int = 128, heads: int = 4, layers: int = 3, context: int = 64) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(VOCABULARY, dim), nn.Embedding(context, dim)
        self.blocks = nn.Sequential(*(Block(dim, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def manual() -> bytes:
    """The text, one byte a character."""
    return "\n".join(topics.values()).encode("ascii", errors="replace")


def batches(size: int, context: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Random windows of the text, without end: inputs and targets, each (size, context)."""
    text = torch.frombuffer(bytearray(manual()), dtype=torch.uint8).to(device, torch.long)
    window = torch.arange(context + 1, device=device)
    while True:
        starts = torch.randint(len(text) - context, (size, 1), device=device)
        tokens = text[starts + window]
        yield tokens[:, :-1], tokens[:, 1:]


class StepClock:
    """Times steps without making the host wait for the device: CUDA events on a GPU, the host's clock on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.marks: list[Any] = []
        self.mark()

    def mark(self) -> None:
        if self.cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())

    def steps_ms(self) -> list[float]:
        if self.cuda:
            torch.cuda.synchronize()
            return [start.elapsed_time(end) for start, end in pairwise(self.marks)]
        return [(end - start) * 1e3 for start, end in pairwise(self.marks)]


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Iterable[tuple[Tensor, Tensor]],
    *,
    steps: int,
    device: torch.device,
    log: Callable[[str], None] = print,
) -> None:
    clock = StepClock(device)
    for step, (inputs, targets) in enumerate(islice(data, steps)):
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        clock.mark()
        if step % 20 == 0 or step == steps - 1:
            log(f"step {step:3d}  loss {loss.item():.3f}")
    times = clock.steps_ms()[WARMUP:] or clock.steps_ms()
    log(f"mean step {statistics.mean(times):.2f} ms, median {statistics.median(times):.2f} ms, over {len(times)} steps")


def options(description: str, steps: int = 200) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--steps", type=int, default=steps, help="training steps")
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", type=torch.device, default=default, help="where to train")
    return parser
