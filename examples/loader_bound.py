"""A DataLoader that keeps the training waiting: it decompresses and encodes a whole shard for every sample it takes."""

import lzma

import charlm
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler

SHARD = 32 * 1024  # characters


class Shards(Dataset[tuple[Tensor, Tensor]]):
    """The text in compressed shards; item i is a random window of shard i, as inputs and targets, each (context,)."""

    def __init__(self, context: int) -> None:
        text = charlm.manual()
        self.context = context
        self.shards = [lzma.compress(text[at : at + SHARD]) for at in range(0, len(text) - SHARD + 1, SHARD)]

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        text = lzma.decompress(self.shards[index]).decode("ascii")
        codes = torch.tensor([ord(character) for character in text])
        start = int(torch.randint(len(codes) - self.context, ()))
        window = codes[start : start + self.context + 1]
        return window[:-1], window[1:]


def main() -> None:
    args = charlm.options(__doc__).parse_args()
    torch.manual_seed(0)
    model = charlm.CharLM(layers=1).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    dataset = Shards(context=64)
    sampler = RandomSampler(dataset, replacement=True, num_samples=16 * args.steps)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    charlm.train(model, optimizer, loader, steps=args.steps, device=args.device)


if __name__ == "__main__":
    main()
