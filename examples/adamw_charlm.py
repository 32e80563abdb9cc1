"""AdamW on a small character transformer: a program that calls no QR, for comparison."""

import charlm
import torch


def main() -> None:
    args = charlm.options(__doc__).parse_args()
    torch.manual_seed(0)
    model = charlm.CharLM().to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = charlm.batches(size=32, context=64, device=args.device)
    charlm.train(model, optimizer, data, steps=args.steps, device=args.device)


if __name__ == "__main__":
    main()
